#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "core/numeric.h"
#include "core/random.h"
#include "device/cpu/peak_loops.h"
#include "tilewright/device_spec.h"

namespace tilewright {
namespace {

struct Loop {
  ArithmeticUnit unit;
  std::uint32_t features;
  std::string_view instruction;
  void (*run)(int rounds);
  int rounds;
  double ops;  // of one round on one worker; a multiplication and an addition are two
};

constexpr int kRounds = 40'000;
constexpr int kTileRounds = kRounds / 10;  // a tile instruction takes 16 cycles
constexpr double kTileProducts = 4 * 16 * 16;
// Best first.
constexpr Loop kLoops[] = {
    {ArithmeticUnit::kF32, kFeatureAvx512, "vfmadd zmm", PeakF32Avx512, kRounds,
     kPeakSums * 2.0 * 16},
    {ArithmeticUnit::kF32, kFeatureAvx2, "vfmadd ymm", PeakF32Avx2, kRounds, kPeakSums * 2.0 * 8},
    {ArithmeticUnit::kBF16, kFeatureAvx512Bf16, "vdpbf16ps", PeakBF16Avx512Bf16, kRounds,
     kPeakSums * 2.0 * 32},
    {ArithmeticUnit::kI8, kFeatureAvx512Vnni, "vpdpbusd", PeakI8Avx512Vnni, kRounds,
     kPeakSums * 2.0 * 64},
    {ArithmeticUnit::kI8, kFeatureAvx512, "vpmaddubsw zmm", PeakI8Avx512, kRounds,
     kPeakSums / 2 * 2.0 * 64},
    {ArithmeticUnit::kI8, kFeatureAvx2, "vpmaddubsw ymm", PeakI8Avx2, kRounds,
     kPeakSums / 2 * 2.0 * 32},
    {ArithmeticUnit::kAmxBF16, kFeatureAmxTile | kFeatureAmxBf16, "tdpbf16ps", PeakBF16Amx,
     kTileRounds, kTileProducts * 2 * 32},
    {ArithmeticUnit::kAmxI8, kFeatureAmxTile | kFeatureAmxInt8, "tdpbssd", PeakI8Amx, kTileRounds,
     kTileProducts * 2 * 64},
};

/// Each task times itself for a tenth of a millisecond: on a busy machine most samples still run
/// undisturbed, while a sample over all workers almost never does. The median ignores those that
/// were interrupted as well as those whose sibling thread was idle. Workers that have no processor of
/// their own get no task: one that takes turns times its own turn alone, as if nobody else had one.
double GigaOps(const Loop& loop, Executor& executor) {
  constexpr int kRepeats = 41;
  const auto workers = static_cast<std::size_t>(std::min(executor.workers(), DefaultThreads()));
  std::vector<double> seconds(kRepeats * workers);
  for (std::size_t repeat = 0; repeat < kRepeats; ++repeat) {
    executor.Run(static_cast<int>(workers), [&](int task, int) {
      const auto start = std::chrono::steady_clock::now();
      loop.run(loop.rounds);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      seconds[repeat * workers + static_cast<std::size_t>(task)] = took.count();
    });
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return loop.ops * loop.rounds * static_cast<double>(workers) / *middle * 1e-9;
}

/// Made once, of one seed: equal in every process.
struct LiveOperands {
  alignas(64) float floats[16 * 16];
  alignas(64) std::uint16_t bf16[4 * 16 * 32];
  alignas(64) unsigned char bytes[4 * 16 * 64];

  LiveOperands() {
    Random random(20);
    for (float& x : floats) x = static_cast<float>(random.Uniform(-1, 1));
    for (std::uint16_t& x : bf16) x = F32ToBF16(static_cast<float>(random.Uniform(-1, 1)));
    for (unsigned char& x : bytes) x = static_cast<unsigned char>(random.Below(256));
  }
};
const LiveOperands& Live() {
  static const LiveOperands live;
  return live;
}

}  // namespace

const float* LiveFloats() { return Live().floats; }
const std::uint16_t* LiveBF16() { return Live().bf16; }
const unsigned char* LiveBytes() { return Live().bytes; }

std::optional<PeakRate> MeasurePeak(const DeviceSpec& device, Executor& executor,
                                    ArithmeticUnit unit) {
  if (device.kind != DeviceKind::kCpu) return std::nullopt;
  for (const Loop& loop : kLoops) {
    if (loop.unit == unit && device.Has(loop.features))
      return PeakRate{GigaOps(loop, executor), loop.instruction};
  }
  return std::nullopt;
}

DeviceRates CalibrateRates(const DeviceSpec& device, Executor& executor) {
  DeviceRates rates = device;
  if (device.kind != DeviceKind::kCpu) return rates;
  if (const double read = MeasureReadBandwidth(executor); read > 0) rates.read_gb_s = read;
  const std::pair<ArithmeticUnit, double*> units[] = {
      {ArithmeticUnit::kF32, &rates.f32_gflop_s},
      {ArithmeticUnit::kBF16, &rates.bf16_gflop_s},
      {ArithmeticUnit::kI8, &rates.i8_gop_s},
      {ArithmeticUnit::kAmxBF16, &rates.amx_bf16_gflop_s},
      {ArithmeticUnit::kAmxI8, &rates.amx_i8_gop_s}};
  for (const auto& [unit, rate] : units) {
    if (const auto peak = MeasurePeak(device, executor, unit))
      *rate = peak->giga_ops / executor.workers();
  }
  return rates;
}

}  // namespace tilewright
