#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "core/test_executor.h"
#include "device/cpu/peak_loops.h"
#include "tilewright/device_spec.h"

namespace tilewright {
namespace {

constexpr ArithmeticUnit kUnits[] = {ArithmeticUnit::kF32, ArithmeticUnit::kBF16,
                                     ArithmeticUnit::kI8, ArithmeticUnit::kAmxBF16,
                                     ArithmeticUnit::kAmxI8};

double Seconds(void (*loop)(int), int rounds) {
  double best = 1e9;
  for (int repeat = 0; repeat < 9; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    loop(rounds);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

TEST(PeakTest, EveryLoopTakesTimeInProportionToItsRounds) {
  const struct {
    std::uint32_t features;
    void (*run)(int);
  } loops[] = {{kFeatureAvx2, PeakF32Avx2},
               {kFeatureAvx2, PeakI8Avx2},
               {kFeatureAvx512, PeakF32Avx512},
               {kFeatureAvx512, PeakI8Avx512},
               {kFeatureAvx512Vnni, PeakI8Avx512Vnni},
               {kFeatureAvx512Bf16, PeakBF16Avx512Bf16},
               {kFeatureAmxTile | kFeatureAmxBf16, PeakBF16Amx},
               {kFeatureAmxTile | kFeatureAmxBf16, AllTilesBF16Amx},
               {kFeatureAmxTile | kFeatureAmxInt8, PeakI8Amx}};
  const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  int index = 0;
  for (const auto& loop : loops) {
    if (device.Has(loop.features)) {
      const double ratio = Seconds(loop.run, 160'000) / Seconds(loop.run, 10'000);
      EXPECT_GT(ratio, 4) << "loop " << index;  // 16 when nothing is optimised away
    }
    ++index;
  }
}

TEST(PeakTest, AUnitIsMeasuredWithTheBestInstructionOfTheLevelAndOtherwiseNotAtAll) {
  const auto pool = MakeThreadPool(1);
  DeviceSpec device;
  for (const ArithmeticUnit unit : kUnits) EXPECT_FALSE(MeasurePeak(device, *pool, unit));
  device = DetectCpuCappedAt(Isa::kAvx2);
  if (!device.Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
  EXPECT_EQ(MeasurePeak(device, *pool, ArithmeticUnit::kF32)->instruction, "vfmadd ymm");
  EXPECT_EQ(MeasurePeak(device, *pool, ArithmeticUnit::kI8)->instruction, "vpmaddubsw ymm");
  EXPECT_FALSE(MeasurePeak(device, *pool, ArithmeticUnit::kBF16));
  EXPECT_FALSE(MeasurePeak(device, *pool, ArithmeticUnit::kAmxI8));
  device = DetectCpuCappedAt(Isa::kAmx);
  if (!device.Has(kFeatureAvx512Vnni)) GTEST_SKIP() << "no VNNI";
  EXPECT_EQ(MeasurePeak(device, *pool, ArithmeticUnit::kI8)->instruction, "vpdpbusd");
  EXPECT_EQ(MeasurePeak(device, *pool, ArithmeticUnit::kAmxI8).has_value(),
            device.Has(kFeatureAmxInt8));
}

TEST(PeakTest, WorkersThatShareAProcessorAddNothing) {
  const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  if (!device.Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
  test::CallersThread as_many(DefaultThreads()), many(DefaultThreads() * 64);
  for (const ArithmeticUnit unit : kUnits) {
    const auto peak = MeasurePeak(device, as_many, unit), same = MeasurePeak(device, many, unit);
    ASSERT_EQ(peak.has_value(), same.has_value());
    // Wide, since others may be at work.
    if (peak) {
      EXPECT_LT(same->giga_ops, 8 * peak->giga_ops) << peak->instruction;
    }
  }
  const DeviceRates rates = CalibrateRates(device, as_many), shared = CalibrateRates(device, many);
  EXPECT_LT(shared.f32_gflop_s, rates.f32_gflop_s / 8) << "of one of the many";
}

TEST(PeakTest, AGpuIsNotMeasuredHere) {
  DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  device.kind = DeviceKind::kCuda;
  device.read_gb_s = 4800, device.bf16_gflop_s = 989e3;
  EXPECT_FALSE(MeasurePeak(device, SerialExecutor(), ArithmeticUnit::kF32));
  EXPECT_EQ(CalibrateRates(device, SerialExecutor()), static_cast<const DeviceRates&>(device));
}

TEST(CalibrateTest, EveryUnitThatIsThereHasARateAndTheOthersHaveNone) {
  const auto pool = MakeThreadPool(2);
  const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  const DeviceRates rates = CalibrateRates(device, *pool);
  EXPECT_GT(rates.read_gb_s, 0);
  EXPECT_NE(rates.read_gb_s, device.read_gb_s);
  EXPECT_EQ(rates.bf16_gflop_s > 0, device.Has(kFeatureAvx512Bf16));
  EXPECT_EQ(rates.amx_bf16_gflop_s > 0, device.Has(kFeatureAmxBf16));
  EXPECT_EQ(rates.amx_i8_gop_s > 0, device.Has(kFeatureAmxInt8));
  if (!device.Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
  EXPECT_NE(rates.f32_gflop_s, device.f32_gflop_s);
  EXPECT_NE(rates.i8_gop_s, device.i8_gop_s);
  // Of one thread: two workers together do not count twice. Wide, since others may be at work.
  const auto alone = MeasurePeak(device, SerialExecutor(), ArithmeticUnit::kF32);
  ASSERT_TRUE(alone);
  EXPECT_LT(rates.f32_gflop_s, alone->giga_ops * 1.7);
  EXPECT_GT(rates.f32_gflop_s, alone->giga_ops / 8);
}

TEST(CalibrateTest, WithoutVectorInstructionsTheArithmeticKeepsItsDefaults) {
  DeviceSpec device = DetectCpuCappedAt(Isa::kScalar);
  device.f32_gflop_s = 7, device.i8_gop_s = 8;
  const DeviceRates rates = CalibrateRates(device, SerialExecutor());
  EXPECT_EQ(rates.f32_gflop_s, 7);
  EXPECT_EQ(rates.i8_gop_s, 8);
  EXPECT_NE(rates.read_gb_s, device.read_gb_s);
}

TEST(DefaultRatesTest, OnlyTheUnitsOfTheFeaturesHaveARate) {
  EXPECT_EQ(DefaultRates(kFeatureAvx2, 1), DeviceRates());
  EXPECT_GT(DefaultRates(kFeatureAvx512Bf16, 1).bf16_gflop_s, 0);
  EXPECT_EQ(DefaultRates(kFeatureAvx512Bf16, 1).amx_bf16_gflop_s, 0);
  const DeviceRates amx = DefaultRates(kFeatureAmxTile | kFeatureAmxInt8, 1);
  EXPECT_GT(amx.amx_i8_gop_s, amx.i8_gop_s);
  EXPECT_EQ(amx.amx_bf16_gflop_s, 0);
}

TEST(DefaultRatesTest, WiderVectorsAreFasterAndVnniMostOfAll) {
  const DeviceRates avx2 = DefaultRates(kFeatureAvx2, 1);
  const DeviceRates avx512 = DefaultRates(kFeatureAvx2 | kFeatureAvx512, 1);
  const DeviceRates vnni = DefaultRates(kFeatureAvx2 | kFeatureAvx512 | kFeatureAvx512Vnni, 1);
  EXPECT_GT(avx512.f32_gflop_s, avx2.f32_gflop_s);
  EXPECT_GT(avx512.i8_gop_s, avx2.i8_gop_s);
  EXPECT_EQ(vnni.f32_gflop_s, avx512.f32_gflop_s);
  EXPECT_GT(vnni.i8_gop_s, avx512.i8_gop_s);
}

TEST(DefaultRatesTest, MoreThreadsReadMoreUpToWhatMemoryGives) {
  const double one = DefaultRates(0, 1).read_gb_s;
  EXPECT_GE(DefaultRates(0, 2).read_gb_s, one);
  EXPECT_GT(DefaultRates(0, 16).read_gb_s, 4 * one);
  EXPECT_EQ(DefaultRates(0, 1000).read_gb_s, DefaultRates(0, 2000).read_gb_s);
  EXPECT_EQ(DefaultRates(0, 0).read_gb_s, one);
}

}  // namespace
}  // namespace tilewright
