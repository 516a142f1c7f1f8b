#include "ops/gemm/base/alignment.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace tilewright {
namespace {

/// x [1][k] times W [n][k] at these addresses.
GemmDesc Promised(std::size_t a, std::size_t b, std::size_t d, DataType type, int k, int n = 64) {
  GemmArgs args;
  args.a = reinterpret_cast<const void*>(a);
  args.b = reinterpret_cast<const void*>(b);
  args.d = reinterpret_cast<void*>(d);
  args.a_layout = {DataType::kBF16, Order::kRowMajor, 1, k, k};
  args.b_layout = {type, Order::kColMajor, k, n, k};
  args.d_layout = {DataType::kBF16, Order::kRowMajor, 1, n, n};
  GemmDesc desc;
  PromiseAlignment(args, desc);
  return desc;
}

TEST(PromiseAlignment, IsWhatAddressesAndLinesHaveUpToSixteenBytes) {
  GemmDesc desc = Promised(0x1000, 0x2000, 0x3000, DataType::kBF16, 64);
  EXPECT_EQ(desc.align_a, 4);
  EXPECT_EQ(desc.align_b, 4);
  EXPECT_EQ(desc.align_c, 4);
  EXPECT_EQ(Promised(0x1008, 0x2000, 0x3000, DataType::kBF16, 64).align_a, 3);
  EXPECT_EQ(Promised(0x1000, 0x2002, 0x3000, DataType::kBF16, 64).align_b, 1);
  EXPECT_EQ(Promised(0x1000, 0x2000, 0x3001, DataType::kBF16, 64).align_c, 0);
  // Lines of 2 x 63, of 9 x 18 and of 3 x 144 bytes.
  EXPECT_EQ(Promised(0x1000, 0x2000, 0x3000, DataType::kBF16, 63).align_a, 1);
  EXPECT_EQ(Promised(0x1000, 0x2000, 0x3000, DataType::kQ4_0, 288).align_b, 1);
  EXPECT_EQ(Promised(0x1000, 0x2000, 0x3000, DataType::kQ4_K, 768).align_b, 4);
  EXPECT_EQ(Promised(0x1000, 0x2000, 0x3000, DataType::kBF16, 64, 63).align_c, 1);
}

TEST(PromiseAlignment, TakesNoAddressForMemoryOfTheDevice) {
  const GemmDesc desc = Promised(0, 0, 0, DataType::kQ8_0, 64);
  EXPECT_EQ(desc.align_a, 4);
  EXPECT_EQ(desc.align_b, 2) << "lines of 2 x 34 bytes";
  EXPECT_EQ(desc.align_c, 4);
}

TEST(PromiseAlignment, OfTheWeightsOfANormWhereThereIsOne) {
  GemmArgs args;
  args.a_layout = args.c_layout = args.d_layout = {DataType::kBF16, Order::kRowMajor, 1, 64, 64};
  args.b_layout = {DataType::kBF16, Order::kColMajor, 64, 64, 64};
  args.norm = reinterpret_cast<const void*>(0x1008);
  GemmDesc desc;
  PromiseAlignment(args, desc);
  EXPECT_EQ(desc.align_norm, 0);
  args.prologue = Prologue::kRmsNorm, args.type_norm = DataType::kF32;
  PromiseAlignment(args, desc);
  EXPECT_EQ(desc.align_norm, 3);
}

TEST(PromiseAlignment, OfAResultIsThatOfTheAddendToo) {
  GemmArgs args;
  args.a_layout = {DataType::kBF16, Order::kRowMajor, 1, 64, 64};
  args.b_layout = {DataType::kBF16, Order::kColMajor, 64, 64, 64};
  args.c_layout = args.d_layout = {DataType::kBF16, Order::kRowMajor, 1, 64, 64};
  args.c = reinterpret_cast<const void*>(0x1004);
  args.d = reinterpret_cast<void*>(0x2000);
  GemmDesc desc;
  PromiseAlignment(args, desc);
  EXPECT_EQ(desc.align_c, 4) << "C is not read";
  args.beta = 1;
  PromiseAlignment(args, desc);
  EXPECT_EQ(desc.align_c, 2);
}

}  // namespace
}  // namespace tilewright
