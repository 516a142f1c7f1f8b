#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/block_format.h"
#include "core/random.h"
#include "core/test_util.h"

namespace tilewright {
namespace {

class EmbeddingKernels : public ::testing::Test {
 protected:
  EmbeddingKernels() { AddEmbedding(registry_); }
  std::vector<const EmbeddingKernel*> Runnable() const {
    std::vector<const EmbeddingKernel*> kernels;
    for (EmbeddingKernel* kernel : registry_.kernels()) {
      if (!kernel->CheckDevice(DetectCpuCappedAt(Isa::kAmx))) kernels.push_back(kernel);
    }
    return kernels;
  }
  EmbeddingRegistry registry_;
};

/// Random bytes are a fair sample of all code points, scales that are denormal, infinite or NaN among them.
TEST_F(EmbeddingKernels, decode_every_type_bit_for_bit_as_the_scalar_reference_does) {
  Random random(1);
  constexpr std::int64_t kCols = 512, kRows = 40;
  for (DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ4_0, DataType::kQ4_1, DataType::kQ8_0,
                        DataType::kQ6_K}) {
    test::GuardedBytes table(BytesOf(type, kCols * kRows), 2);
    for (std::size_t i = 0; i < table.size(); ++i) static_cast<unsigned char*>(table.data())[i] = static_cast<unsigned char>(random());
    std::vector<std::int32_t> ids = {39, 0, 7, 7, 21};
    for (const EmbeddingKernel* kernel : Runnable()) {
      const std::int64_t stride = kCols + 3;
      test::Guarded<float> out(ids.size() * static_cast<std::size_t>(stride));
      EmbeddingArgs args{Contiguous(table.data(), type, {kCols, kRows, 1, 1}),
                         Contiguous(ids.data(), DataType::kI32, {5, 1, 1, 1}),
                         TensorView{out.data(), {kCols, 5, 1, 1}, {1, stride, 0, 0}, DataType::kF32}};
      ASSERT_TRUE(kernel->Launch(args, Stream{}));
      EXPECT_EQ(out.Damage(), "");
      std::vector<float> want(kCols);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ASSERT_TRUE(DecodeRow(type, static_cast<unsigned char*>(table.data()) + BytesOf(type, ids[i] * kCols), kCols, want.data()));
        for (std::int64_t c = 0; c < kCols; ++c) {
          const float got = out[i * static_cast<std::size_t>(stride) + static_cast<std::size_t>(c)], expected = want[static_cast<std::size_t>(c)];
          ASSERT_TRUE(std::memcmp(&got, &expected, 4) == 0 || (std::isnan(got) && std::isnan(expected)))
              << kernel->name() << " " << DataTypeName(type) << " row " << i << " column " << c << ": " << got << " against " << expected;
        }
      }
    }
  }
}

TEST_F(EmbeddingKernels, refuse_an_id_outside_the_table_before_writing) {
  std::vector<float> table(32 * 4), out(32 * 2, -7.0f);
  for (std::int32_t bad : {-1, 4}) {
    std::vector<std::int32_t> ids = {0, bad};
    EmbeddingArgs args{Contiguous(table.data(), DataType::kF32, {32, 4, 1, 1}), Contiguous(ids.data(), DataType::kI32, {2, 1, 1, 1}),
                       Contiguous(out.data(), DataType::kF32, {32, 2, 1, 1})};
    for (const EmbeddingKernel* kernel : Runnable()) {
      const Status status = kernel->Launch(args, Stream{});
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().message, "embedding: ids[1] = " + std::to_string(bad) + ", must be 0 to 3");
      EXPECT_EQ(out[0], -7.0f);
    }
    EXPECT_FALSE(ReferenceEmbedding(args));
  }
}

TEST_F(EmbeddingKernels, reject_what_they_cannot_decode) {
  for (EmbeddingKernel* kernel : registry_.kernels()) {
    EXPECT_TRUE(kernel->IsFeasible({.type_table = DataType::kI8, .cols = 32}));
    EXPECT_TRUE(kernel->IsFeasible({.type_table = DataType::kQ6_K, .cols = 128}));
    EXPECT_FALSE(kernel->IsFeasible({.type_table = DataType::kQ6_K, .cols = 256}));
  }
}

}  // namespace
}  // namespace tilewright
