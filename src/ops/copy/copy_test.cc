#include "ops/copy/copy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/block_format.h"
#include "core/numeric.h"
#include "core/test_util.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"
#include "engine/verified_test_util.h"

namespace tilewright::copy {
namespace {

using CopyTest = test::OpTest<Op>;
using test::Rows;

TEST_F(CopyTest, EveryNumberOfThreadsGivesTheSameBits) {
  std::vector<float> src = test::RandomFloats(1001 * 400, 7);
  for (const DataType to : {DataType::kF32, DataType::kF16}) {
    std::vector<unsigned char> dst(BytesOf(to, 1001 * 400));
    for (const std::int64_t cols : {1001, 1000}) {  // contiguous, then row by row
      const Args args{Rows(src.data(), DataType::kF32, cols, 400, 1001),
                      Rows(dst.data(), to, cols, 400, 1001)};
      for (Kernel* kernel : Kernels())
        test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, dst.data(), dst.size());
    }
  }
}

TEST_F(CopyTest, EveryKernelConvertsEveryPairOfFloatsToTheSameBits) {
  const auto pool = MakeThreadPool(3);
  std::uint64_t seed = 200;
  for (const DataType from : {DataType::kF32, DataType::kF16, DataType::kBF16}) {
    for (const DataType to : {DataType::kF32, DataType::kF16, DataType::kBF16}) {
      for (const auto& [cols, rows, pad] :
           {std::tuple{1, 1, 0}, {7, 3, 2}, {16, 3, 0}, {31, 5, 1}, {64, 2, 0}, {1000, 300, 0}}) {
        test::RandomMatrix src(from, rows, cols, ++seed, 100.0, cols + pad);
        // The conversions themselves, one by one.
        std::vector<float> exact(static_cast<std::size_t>(rows * cols));
        for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = static_cast<float>(src.values[i]);
        std::vector<unsigned char> want(BytesOf(to, rows * cols));
        ASSERT_TRUE(EncodeRow(to, exact.data(), rows * cols, want.data()));
        for (Kernel* kernel : Kernels()) {
          SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(from)) +
                       " to " + std::string(DataTypeName(to)) + " cols " + std::to_string(cols));
          const std::int64_t ld = cols + 3 * pad;
          test::GuardedBytes dst(BytesOf(to, ld * rows), 4);
          ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                     {Rows(src.bytes.data(), from, cols, rows, src.ld),
                                      Rows(dst.data(), to, cols, rows, ld)},
                                     Stream{pool.get()}));
          EXPECT_EQ(dst.Damage(), "");
          const std::size_t row_bytes = BytesOf(to, cols);
          for (std::int64_t r = 0; r < rows; ++r) {
            const auto* got = static_cast<const unsigned char*>(dst.data()) + BytesOf(to, ld * r);
            ASSERT_TRUE(test::BitwiseEqual(
                got, want.data() + static_cast<std::size_t>(r) * row_bytes, row_bytes))
                << r;
            for (std::size_t i = row_bytes; i < BytesOf(to, ld); ++i)
              ASSERT_EQ(got[i], 0xff) << "padding was written";
          }
        }
      }
    }
  }
}

TEST_F(CopyTest, EveryKernelRoundsRowsToI8x32AsTheScalarFunctionDoes) {
  const auto pool = MakeThreadPool(3);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& [cols, rows, pad] :
       {std::tuple{32, 1, 0}, {64, 5, 3}, {96, 400, 0}, {4096, 40, 1}}) {
    const std::int64_t from_ld = cols + 7 * pad, ld = cols + 32 * pad;
    auto src = test::RandomFloats(static_cast<std::size_t>(from_ld * rows), 41, 3.0);
    // A block each of ties, of values that are not finite, of tiny ones and of zeros.
    for (int j = 0; j < 32; ++j) src[static_cast<std::size_t>(j)] = static_cast<float>(j) + 0.5f;
    src[31] = 127.0f;
    if (cols >= 64) src[40] = -kInf;
    if (rows >= 5) {
      src[static_cast<std::size_t>(from_ld) + 1] = kNan;
      for (std::int64_t j = 0; j < 32; ++j) {
        src[static_cast<std::size_t>(2 * from_ld + j)] = 0x1p-101f * static_cast<float>(j % 2);
        src[static_cast<std::size_t>(3 * from_ld + j)] = -0.0f;
        src[static_cast<std::size_t>(4 * from_ld + j)] = 0x1p-100f;
      }
    }
    const std::size_t row_bytes = BytesOf(DataType::kI8X32, cols);
    std::vector<unsigned char> want(row_bytes * static_cast<std::size_t>(rows));
    for (std::int64_t r = 0; r < rows; ++r) {
      ASSERT_TRUE(EncodeRow(DataType::kI8X32, src.data() + r * from_ld, cols,
                            want.data() + static_cast<std::size_t>(r) * row_bytes));
    }
    for (Kernel* kernel : Kernels()) {
      SCOPED_TRACE(std::string(kernel->name()) + " cols " + std::to_string(cols));
      test::GuardedBytes dst(BytesOf(DataType::kI8X32, ld * rows), 4);
      ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                 {Rows(src.data(), DataType::kF32, cols, rows, from_ld),
                                  Rows(dst.data(), DataType::kI8X32, cols, rows, ld)},
                                 Stream{pool.get()}));
      EXPECT_EQ(dst.Damage(), "");
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto* got =
            static_cast<const unsigned char*>(dst.data()) + BytesOf(DataType::kI8X32, ld * r);
        ASSERT_TRUE(test::BitwiseEqual(got, want.data() + static_cast<std::size_t>(r) * row_bytes,
                                       row_bytes))
            << r;
        for (std::size_t i = row_bytes; i < BytesOf(DataType::kI8X32, ld); ++i)
          ASSERT_EQ(got[i], 0xff) << "padding was written";
      }
    }
  }
}

TEST_F(CopyTest, EveryHalfAndEveryHardFloatConvertsAsTheScalarFunctionsDo) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> floats;
  Random random(3);
  for (int i = 0; i < 65536; ++i) {
    // All bit patterns; half of them within one unit of a tie of f16 or bf16.
    auto bits = static_cast<std::uint32_t>(random.Next());
    if (i % 4 == 1) bits = (bits & ~0x1fffu) + 0xfffu + static_cast<std::uint32_t>(random.Below(3));
    if (i % 4 == 3)
      bits = (bits & ~0xffffu) + 0x7fffu + static_cast<std::uint32_t>(random.Below(3));
    floats.push_back(F32FromBits(bits));
  }
  for (Kernel* kernel : Kernels()) {
    if (kernel->info().reference) continue;  // goes through f64, which quietens NaNs on its own
    SCOPED_TRACE(kernel->name());
    std::vector<float> wide(65536);
    std::vector<std::uint16_t> narrow(65536);
    for (const DataType type : {DataType::kF16, DataType::kBF16}) {
      ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                 {Rows(halves.data(), type, 65536, 1, 65536),
                                  Rows(wide.data(), DataType::kF32, 65536, 1, 65536)},
                                 Stream{}));
      ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                 {Rows(floats.data(), DataType::kF32, 65536, 1, 65536),
                                  Rows(narrow.data(), type, 65536, 1, 65536)},
                                 Stream{}));
      const bool f16 = type == DataType::kF16;
      for (std::size_t i = 0; i < 65536; ++i) {
        ASSERT_EQ(BitsOfF32(wide[i]), BitsOfF32(f16 ? F16ToF32(halves[i]) : BF16ToF32(halves[i])))
            << i;
        ASSERT_EQ(narrow[i], f16 ? F32ToF16(floats[i]) : F32ToBF16(floats[i]))
            << BitsOfF32(floats[i]);
      }
    }
  }
}

TEST_F(CopyTest, AnyTypeCopiesItsBytes) {
  std::vector<DataType> types = {DataType::kI32, DataType::kU8, DataType::kI64, DataType::kF64};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  for (const DataType type : types) {
    const std::int64_t cols = 2 * GetTypeInfo(type).block_elements;
    test::RandomMatrix src(type, 5, cols, 7, 1.0, 2 * cols);
    for (Kernel* kernel : Kernels()) {
      std::vector<unsigned char> dst(BytesOf(type, cols) * 5);
      ASSERT_TRUE(LaunchOnce<Op>(
          *kernel,
          {Rows(src.bytes.data(), type, cols, 5, 2 * cols), Rows(dst.data(), type, cols, 5, cols)},
          Stream{}));
      for (std::size_t r = 0; r < 5; ++r) {
        ASSERT_TRUE(test::BitwiseEqual(
            dst.data() + r * BytesOf(type, cols),
            static_cast<unsigned char*>(src.bytes.data()) + r * BytesOf(type, 2 * cols),
            BytesOf(type, cols)))
            << kernel->name() << " " << DataTypeName(type);
      }
    }
  }
}

TEST_F(CopyTest, EveryKernelUnpacksEveryBlockFormatToTheBitsOfDecodeRow) {
  const auto pool = MakeThreadPool(3);
  std::uint64_t seed = 700;
  for (const BlockFormat& format : kFormats) {
    for (const auto& [blocks, rows, pad] :
         {std::tuple{1, 1, 0}, {1, 3, 1}, {3, 5, 0}, {9, 3, 2}, {8, 600, 0}}) {
      const int cols = blocks * format.elements;
      const test::RandomMatrix src(format.type, rows, cols, ++seed, 1.0,
                                   cols + pad * format.elements);
      const std::int64_t ld = cols + 3 * pad;  // of f32: any
      for (Kernel* kernel : Kernels()) {
        SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(format.type)) +
                     " cols " + std::to_string(cols));
        test::GuardedBytes dst(BytesOf(DataType::kF32, ld * rows), 4);
        ASSERT_TRUE(
            LaunchOnce<Op>(*kernel,
                           {Rows(const_cast<void*>(static_cast<const void*>(src.bytes.data())),
                                 format.type, cols, rows, src.ld),
                            Rows(dst.data(), DataType::kF32, cols, rows, ld)},
                           Stream{pool.get()}));
        EXPECT_EQ(dst.Damage(), "");
        std::vector<float> want(static_cast<std::size_t>(cols));
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto* row = static_cast<const unsigned char*>(src.bytes.data()) +
                            BytesOf(format.type, src.ld * r);
          ASSERT_TRUE(DecodeRow(format.type, row, cols, want.data()));
          const auto* got = static_cast<const float*>(dst.data()) + ld * r;
          ASSERT_TRUE(test::BitwiseEqual(got, want.data(), want.size() * 4)) << r;
          for (std::int64_t i = cols; i < ld; ++i)
            ASSERT_EQ(BitsOfF32(got[i]), 0xffffffffu) << "padding was written";
        }
        if (test::IsListed(kernel->info())) {
          test::NoteVerified({.operation = "unpack",
                              .subject = DataTypeName(format.type),
                              .device = test::LevelOf(kernel->info(), device_),
                              .how = "f32"});
        }
      }
    }
  }
}

TEST_F(CopyTest, ATransposeFallsToTheKernelThatTakesAnyStride) {
  std::vector<float> src = {1, 2, 3, 4, 5, 6}, dst(6);
  const Args args{TensorView{src.data(), {2, 3, 1, 1}, {3, 1, 6, 6}, DataType::kF32},
                  Rows(dst.data(), DataType::kF32, 2, 3, 2)};
  const Desc desc = DescOf(args, CallTerms{}).value();
  const auto choice = Choose(Feasible(*Validate(desc), registry_, device_), nullptr);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->kernel().name(), "copy.any.reference");
  ASSERT_TRUE(LaunchOnce<Op>(choice->kernel(), args, Stream{}));
  EXPECT_EQ(dst, (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST_F(CopyTest, AViewMayBeCopiedOntoItself) {
  std::vector<float> data = {1, 2, 3, 4};
  for (Kernel* kernel : Kernels()) {
    const TensorView view = Rows(data.data(), DataType::kF32, 2, 2, 2);
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, {view, view}, Stream{}));
    EXPECT_EQ(data, (std::vector<float>{1, 2, 3, 4}));
  }
}

TEST_F(CopyTest, ImpossibleCopiesAreRefused) {
  std::vector<float> data(64);
  EXPECT_EQ(
      Choose(Feasible(*Validate(Desc{.type_src = DataType::kI32}), registry_, device_), nullptr)
          .error()
          .code,
      ErrorCode::kUnsupported);
  EXPECT_EQ(
      Choose(Feasible(*Validate(Desc{.type_dst = DataType::kQ8_0, .cols = 32}), registry_, device_),
             nullptr)
          .error()
          .code,
      ErrorCode::kUnsupported);
  EXPECT_FALSE(Validate(Desc{.type_src = DataType::kQ8_0, .cols = 33}));
  EXPECT_FALSE(Validate(Desc{.type_dst = DataType::kI8X32, .cols = 33}));
  EXPECT_FALSE(DescOf(Args{Rows(data.data(), DataType::kQ4_0, 32, 2, 40),
                           Rows(data.data(), DataType::kF32, 32, 2, 32)},
                      CallTerms{}));
  EXPECT_FALSE(DescOf(
      Args{Rows(data.data(), DataType::kF32, 4, 2, 4), Rows(data.data(), DataType::kF32, 4, 3, 4)},
      CallTerms{}));
  EXPECT_FALSE(DescOf(Args{Rows(data.data(), DataType::kQ4_0, 32, 2, 40),
                           Rows(data.data(), DataType::kQ4_0, 32, 2, 32)},
                      CallTerms{}));
  EXPECT_FALSE(DescOf(
      Args{Rows(nullptr, DataType::kF32, 4, 2, 4), Rows(data.data(), DataType::kF32, 4, 2, 4)},
      CallTerms{}));
}

TEST_F(CopyTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .cols = 1536});
}

}  // namespace
}  // namespace tilewright::copy
