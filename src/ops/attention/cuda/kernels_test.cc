#include "ops/attention/cuda/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "ops/attention/cuda/families.h"

// Which kernel an H200 gets for which problem: none is compiled for that, and no GPU is needed.

namespace tilewright::attention {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class CudaAttention : public testing::Test {
 protected:
  CudaAttention() {
    KernelFamilies families;
    EXPECT_TRUE(AddAttentionFamilies(families));
    char folder[] = "/tmp/tilewright-attention-XXXXXX";
    ArtifactStoreOptions options;
    options.root = mkdtemp(folder);
    store_ = ArtifactStore::Open(families, options).value();
    EXPECT_TRUE(AddCudaKernels(registry_, *store_, {90, 'a'}));
    h200_.kind = DeviceKind::kCuda;
    h200_.compute_capability = 90;
    h200_.sm_count = 132;
    h200_.smem_bytes = 227 * 1024;
    h200_.read_gb_s = 4300;
    h200_.f32_gflop_s = 60e3;
    h200_.bf16_gflop_s = 800e3;
  }
  ~CudaAttention() override { std::filesystem::remove_all(store_->root()); }

  Candidates<Op> Look(const Desc& desc) const {
    return Feasible(Validate(desc).value(), registry_, h200_);
  }
  std::string Chosen(const Desc& desc) const {
    const auto choice = Choose(Look(desc), nullptr);
    EXPECT_TRUE(choice) << choice.error().message;
    return choice ? std::string(choice->kernel().name()) : std::string();
  }
  /// As of Llama 3.1 8B.
  static Desc Llama(int rows, int sequences) {
    return {.type_q = DataType::kBF16,
            .type_kv = DataType::kBF16,
            .rows = rows,
            .sequences = sequences,
            .context = 4096,
            .page_size = 64,
            .heads = 32,
            .kv_heads = 8,
            .head_dim = 128};
  }

  std::unique_ptr<ArtifactStore> store_;
  Registry registry_;
  DeviceSpec h200_;
};

TEST_F(CudaAttention, DecodingDividesSequencesAndPromptsShareTheirKeys) {
  EXPECT_THAT(Chosen(Llama(1, 1)), StartsWith("attention_decode.bf16-bf16"));
  EXPECT_THAT(Chosen(Llama(1, 64)), StartsWith("attention_decode."));
  EXPECT_THAT(Chosen(Llama(64, 64)), StartsWith("attention_decode."));
  EXPECT_THAT(Chosen(Llama(64, 1)), StartsWith("attention_hopper."));
  EXPECT_THAT(Chosen(Llama(2048, 1)), StartsWith("attention_hopper.bf16-bf16-none-bf16.tt.sm_90a"));
  EXPECT_THAT(Chosen(Llama(2048, 4)), StartsWith("attention_hopper."));
}

TEST_F(CudaAttention, FewRowsAreGivenToClustersAndManyAreNot) {
  const auto shape = [&](int rows, int context, int heads, int kv_heads, int head_dim) {
    Desc desc = Llama(rows, rows);
    desc.context = context, desc.heads = heads, desc.kv_heads = kv_heads, desc.head_dim = head_dim;
    const std::string name = Chosen(desc);
    return name.substr(name.find("sm_90a.") + 7, name.find(".none") - name.find("sm_90a.") - 7);
  };
  EXPECT_EQ(shape(1, 512, 32, 8, 128), "8x128x0.w8.s1.k0.c0x4");
  EXPECT_EQ(shape(1, 4096, 32, 8, 128), "8x128x0.w8.s1.k0.c0x8");  // 1,024 positions
  EXPECT_EQ(shape(1, 768, 9, 3, 64), "8x128x0.w8.s1.k0.c0x8");  // one round, where others have two
  for (const int context : {16, 512, 4096}) {
    EXPECT_THAT(shape(1, context, 32, 8, 128), testing::Not(HasSubstr(".c0x0"))) << context;
    EXPECT_THAT(shape(1, context, 9, 3, 64), testing::Not(HasSubstr(".c0x0"))) << context;
    EXPECT_THAT(shape(64, context, 32, 8, 128), HasSubstr(".c0x0")) << context;
  }
  EXPECT_EQ(shape(8, 512, 32, 8, 128), "8x128x0.w8.s2.k0.c0x2");
  EXPECT_EQ(shape(32, 512, 9, 3, 64), "8x128x0.w8.s1.k0.c0x0");
  for (const int context : {512, 4096})
    EXPECT_EQ(shape(32, context, 32, 8, 128), "8x128x0.w8.s1.k0.c0x0") << context;
}

TEST_F(CudaAttention, ARowIsTurnedByKernelsOfItsOwnAndOnlyLargeHeadsAreNotForeseen) {
  Desc llama = Llama(1, 1);
  llama.rope_dims = 128;
  for (const int context : {512, 768, 4096, 131072}) {
    llama.context = context;
    EXPECT_THAT(Chosen(llama), HasSubstr(".8x128x0.w8.s1.k0.c0x8.none.p128_0_1_0")) << context;
  }
  Desc small = llama;
  small.context = 768, small.heads = 9, small.kv_heads = 3, small.head_dim = small.rope_dims = 64;
  EXPECT_THAT(Chosen(small), HasSubstr(".8x128x0.w8.s1.k0.c0x8.none.p64_1_1_0"));
  llama.rows = llama.sequences = 2;  // of one sequence, for all that is known
  EXPECT_EQ(Look(llama).feasible_count(), 0u);
  EXPECT_THAT(Look(llama).RejectionText(), HasSubstr("rows = 2"));
}

TEST_F(CudaAttention, EveryTypeOfQueriesAndCachesHasAKernel) {
  for (const DataType q : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const DataType kv : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
      for (const int head_dim : {64, 128}) {
        for (const int rows : {1, 512}) {
          Desc desc = Llama(rows, 1);
          desc.type_q = q, desc.type_kv = kv, desc.head_dim = head_dim;
          for (const int page_size : {0, 64, 256}) {
            desc.page_size = page_size;
            EXPECT_NE(Chosen(desc), "");
          }
        }
      }
    }
  }
}

TEST_F(CudaAttention, HeadsOfOtherSizesHaveAKernelAndNoOthersAreGivenToIt) {
  for (const int head_dim : {1, 8, 16, 20, 32, 80, 96, 112, 192, 255, 256}) {
    Desc desc = Llama(1, 1);
    desc.head_dim = head_dim;
    for (const Guarantee guarantee : {Guarantee::kFastest, Guarantee::kBatchInvariant}) {
      desc.guarantee = guarantee;
      EXPECT_THAT(Chosen(desc), StartsWith("attention_simt.bf16-bf16"));
    }
  }
  for (const int head_dim : {64, 128}) {
    for (const int group : {1, 3, 4, 8}) {
      for (const int rows : {1, 4, 16, 64, 512, 2048}) {
        for (const int sequences : {1, 64}) {
          for (const int context : {128, 4096, 16384}) {
            Desc desc = Llama(rows, sequences);
            desc.head_dim = head_dim, desc.context = context, desc.heads = 8 * group;
            EXPECT_THAT(Chosen(desc), testing::Not(StartsWith("attention_simt"))) << KeyOf(desc);
          }
        }
      }
    }
  }
}

TEST_F(CudaAttention, ASoftCapIsNoReasonToRefuseAKernelOrToTakeAnotherFamily) {
  for (const int rows : {1, 64, 2048}) {
    for (const int head_dim : {20, 128, 256}) {
      for (const int window : {0, 1024}) {
        Desc plain = Llama(rows, 1);
        plain.head_dim = head_dim, plain.window = window;
        Desc capped = plain;
        capped.soft_capped = true;
        EXPECT_EQ(Look(capped).feasible_count(), Look(plain).feasible_count());
        const auto family = [&](const Desc& desc) {
          const std::string name = Chosen(desc);
          return name.substr(0, name.find('.'));
        };
        EXPECT_EQ(family(capped), family(plain)) << KeyOf(capped);
      }
    }
  }
}

TEST_F(CudaAttention, AGuaranteeOfBatchInvarianceIsOneSummationForAllRows) {
  std::set<std::string> names;
  for (const int rows : {1, 7, 64, 2048}) {
    for (const int sequences : {1, 64}) {
      Desc desc = Llama(rows, sequences);
      desc.guarantee = Guarantee::kBatchInvariant;
      names.insert(Chosen(desc));
    }
  }
  ASSERT_EQ(names.size(), 1u);
  EXPECT_THAT(*names.begin(), HasSubstr(".8x256x64."));
}

TEST_F(CudaAttention, SinksAreWeighedByOneFamily) {
  for (const int rows : {1, 2048}) {
    Desc desc = Llama(rows, 1);
    desc.sinks = true;
    for (const Guarantee guarantee : {Guarantee::kFastest, Guarantee::kBatchInvariant}) {
      desc.guarantee = guarantee;
      EXPECT_EQ(Look(desc).feasible_count(), 1);
      EXPECT_THAT(Chosen(desc), testing::StartsWith("attention_simt."));
    }
  }
}

TEST_F(CudaAttention, WhatNoKernelIsForIsRefusedWithTheField) {
  const auto reasons = [&](const Desc& desc) {
    const Candidates<Op> all = Look(desc);
    EXPECT_EQ(all.feasible_count(), 0);
    std::string text;
    for (const auto& candidate : all.all())
      if (candidate.rejection) text += candidate.rejection->ToString() + "\n";
    return text;
  };
  Desc desc = Llama(1, 1);
  desc.head_dim = 264;
  EXPECT_THAT(reasons(desc), HasSubstr("head_dim = 264, needs 128"));
  EXPECT_THAT(reasons(desc), HasSubstr("head_dim = 264, needs at most 256"));
  desc = Llama(1, 1);
  desc.type_kv = DataType::kQ8_0;
  EXPECT_THAT(reasons(desc), HasSubstr("type_kv = q8_0"));
  desc = Llama(1, 1);
  desc.context = 2000000000;
  EXPECT_THAT(reasons(desc), HasSubstr("context = 2000000000"));
  const auto mma = [&](const Desc& problem) {
    const Candidates<Op> all = Look(problem);
    std::string text;
    for (const auto& candidate : all.all()) {
      const bool is = candidate.kernel->name().starts_with("attention_mma.bf16-bf16");
      if (is && candidate.rejection) text += candidate.rejection->ToString() + "\n";
    }
    return text;
  };
  desc = Llama(1, 1);
  desc.heads = 65, desc.kv_heads = 1;
  EXPECT_THAT(mma(desc), HasSubstr("65 heads over 1, needs at most 64"));
  desc.heads = desc.kv_heads = 70000;
  EXPECT_THAT(mma(desc), HasSubstr("kv_heads = 70000, needs at most 65535"));
}

TEST_F(CudaAttention, ALaunchThatDividesRowsAsksForItsWorkspaceAndNoOtherDoes) {
  for (Kernel* kernel : registry_.kernels()) {
    Desc desc = Llama(1, 1);
    if (kernel->IsFeasible(desc)) continue;
    const WorkspaceSize size = kernel->WorkspaceFor(desc, {}, h200_);
    const bool clustered = kernel->name().starts_with("attention_decode") &&
                           kernel->name().find(".c0x0.") == std::string_view::npos;
    const bool divides = kernel->name().starts_with("attention_split") ||
                         (kernel->name().starts_with("attention_decode") && !clustered);
    EXPECT_EQ(size.barriers > 0, divides) << kernel->name();
    EXPECT_EQ(size.partials > 0, divides) << kernel->name();
    desc.rows = 2048;
    EXPECT_EQ(kernel->WorkspaceFor(desc, {}, h200_), WorkspaceSize{}) << kernel->name();
  }
}

}  // namespace
}  // namespace tilewright::attention
