// What a Llama pass asks of a GPU has a kernel there, for every type of weights and activations: the
// catalogs of this library against the problems of models, without a GPU and without compiling.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <string>

#include "models.h"

namespace tilewright {
namespace {

using enum DataType;

constexpr DataType kActivations[] = {kBF16, kF32, kF16};
constexpr DataType kWeights[] = {kBF16, kF16,  kF32,  kQ4_0, kQ4_1, kQ8_0,   kQ4_K,   kQ6_K,
                                 kQ5_0, kQ5_1, kQ5_K, kQ2_K, kQ3_K, kIQ4_NL, kIQ4_XS, kMXFP4};

DeviceSpec Hopper() {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCuda;
  spec.name = "NVIDIA H100 80GB HBM3";
  spec.compute_capability = 90;
  spec.sm_count = 132;
  spec.smem_bytes = 232448;
  spec.l2_bytes = spec.llc_bytes = 50 << 20;
  spec.read_gb_s = 3350;
  spec.f32_gflop_s = 66900;
  spec.bf16_gflop_s = 989000;
  spec.i8_gop_s = 1979000;
  return spec;
}

class CudaCoverage : public testing::Test {
 protected:
  CudaCoverage() {
    ArtifactStoreOptions options;
    options.root = folder_ / "store";
    options.mode = CacheMode::kReadonly;  // nothing is bound, so nothing is compiled
    store_ = ArtifactStore::Open(AllKernelFamilies(), options).value();
    kernels_ = MakeCudaKernels(*store_, {90, 'a'}).value();
    limits_.partials_bytes = PartialsLimit(device_);
    limits_.providers = Bit(Provider::kOwn);
  }
  /// "" where a kernel takes the problem, else the problem and every reason.
  template <class Op>
  std::string Lacking(const typename Op::Desc& desc) {
    const Result<Checked<Op>> checked = Validate(desc);
    if (!checked) return KeyOf(desc) + ": " + checked.error().message;
    const Candidates<Op> candidates = Feasible(*checked, kernels_->of<Op>(), device_, limits_);
    if (candidates.feasible_count() > 0) return "";
    return std::string(Op::kName) + " " + KeyOf(desc) + "\n" + candidates.RejectionText();
  }
  std::string ChosenFor(const GemmDesc& desc) {
    const auto candidates = Feasible(Validate(desc).value(), kernels_->gemm(), device_, limits_);
    const auto choice = Choose(candidates, nullptr);
    return choice ? std::string(choice->kernel().name()) : choice.error().message;
  }

  test::TempDir folder_;
  std::unique_ptr<ArtifactStore> store_;
  std::unique_ptr<Kernels> kernels_;
  DeviceSpec device_ = Hopper();
  FeasibleOptions limits_;
};

/// x [m][k] times W [n][k], dense lines of memory that is aligned to 16 bytes.
GemmDesc Product(DataType a, DataType w, DataType d, int m, int n, int k) {
  GemmDesc desc;
  desc.m = m, desc.n = n, desc.k = k;
  desc.type_a = a, desc.type_b = w, desc.type_c = d;
  const auto log2 = [](std::uint64_t line) {
    return static_cast<std::uint8_t>(std::min(std::countr_zero(line), 4));
  };
  desc.align_a = log2(BytesOf(a, k));
  desc.align_b = log2(BytesOf(w, k));
  desc.align_c = log2(BytesOf(d, n));
  return desc;
}

TEST_F(CudaCoverage, every_product_of_a_pass_has_a_kernel) {
  constexpr int kShapes[][2] = {{576, 576}, {960, 576}, {576, 1536}, {49152, 576}, {6144, 4096}};
  for (const DataType a : kActivations) {
    for (const DataType w : kWeights) {
      for (const auto [n, k] : kShapes) {
        const int block = GetTypeInfo(w).block_elements;
        const int whole = (k + block - 1) / block * block;
        for (const int m : {1, 2, 3, 4, 8, 9, 64, 511, 512}) {
          GemmDesc desc = Product(a, w, a, m, n, whole);
          EXPECT_EQ(Lacking<GemmOp>(desc), "");
          desc.scaling = Scaling::kOneOne;  // the residual
          EXPECT_EQ(Lacking<GemmOp>(desc), "");
          EXPECT_EQ(Lacking<GemmOp>(Product(a, w, kF32, m, n, whole)), "") << "logits";
        }
      }
    }
  }
}

TEST_F(CudaCoverage, gate_and_up_of_one_row_become_one_element_in_the_product) {
  for (const DataType a : {kBF16, kF32}) {
    for (const DataType w : kWeights) {
      if (w == kF32) continue;  // two products and what joins them
      for (const int k : {768, 4096}) {
        GemmDesc desc = Product(a, w, a, 1, 3072, k);
        desc.epilogue = Epilogue::kGatedSilu;
        EXPECT_EQ(Lacking<GemmOp>(desc), "");
        desc.m = 512;
        EXPECT_THAT(Lacking<GemmOp>(desc), testing::HasSubstr("m = 512"))
            << "many rows take a product on tiles";
      }
    }
  }
}

TEST_F(CudaCoverage, one_row_of_activations_streams_plain_weights) {
  // Of Llama-3.1-8B.
  constexpr int kShapes[][2] = {
      {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}};
  for (const auto& [n, k] : kShapes) {
    EXPECT_THAT(ChosenFor(Product(kBF16, kBF16, kBF16, 1, n, k)),
                testing::StartsWith("gemv_stream."));
    EXPECT_THAT(ChosenFor(Product(kBF16, kBF16, kBF16, 16, n, k)), testing::StartsWith("gemm_"));
  }
}

TEST_F(CudaCoverage, so_have_products_of_odd_sizes) {
  for (const DataType a : kActivations) {
    for (const DataType w : kWeights) {
      const int block = GetTypeInfo(w).block_elements;
      for (const int k : {block, 3 * block, 33 * block}) {
        for (const int n : {1, 7, 50257}) {
          for (const int m : {1, 5, 333}) {
            EXPECT_EQ(Lacking<GemmOp>(Product(a, w, a, m, n, k)), "");
            EXPECT_EQ(Lacking<GemmOp>(Product(a, w, kF32, m, n, k)), "");
          }
        }
      }
    }
  }
}

TEST_F(CudaCoverage, so_have_products_of_rows_in_groups) {
  for (const DataType a : kActivations) {
    for (const DataType w : kWeights) {
      const bool blocks = GetTypeInfo(w).block_elements > 1;
      if (a == kF16 && blocks) continue;  // nothing unpacks weights of groups
      for (const int m : {2, 8, 64, 4096, 100000}) {
        for (const Striding striding : {Striding::kIndexed, Striding::kBlocked}) {
          GemmDesc desc = Product(a, w, a, m, 1536, 2048);
          desc.num = 60, desc.group_axis = 0;
          desc.striding_a = striding;
          desc.striding_b = desc.striding_c = Striding::kBlocked;
          // A row of CTAs for each row of many is more than a grid has.
          if (m > 65535 && blocks && a == kF32) continue;
          EXPECT_EQ(Lacking<GemmOp>(desc), "");
          desc.epilogue = Epilogue::kGatedSilu;
          const bool joined = blocks || (w != kF32 && a != kF16 && m < 65536);
          if (joined) {
            EXPECT_EQ(Lacking<GemmOp>(desc), "");
          }
        }
      }
    }
  }
}

TEST_F(CudaCoverage, products_on_tensor_cores_are_chosen_where_there_are_many_rows) {
  EXPECT_THAT(ChosenFor(Product(kBF16, kBF16, kBF16, 512, 4096, 4096)),
              testing::StartsWith("gemm_hopper."));
  EXPECT_THAT(ChosenFor(Product(kF16, kF16, kF16, 512, 4096, 4096)),
              testing::StartsWith("gemm_hopper."));
  EXPECT_THAT(ChosenFor(Product(kBF16, kQ8_0, kBF16, 1, 4096, 4096)),
              testing::StartsWith("gemv_int8."));
  for (const DataType w : {kQ4_0, kQ4_K, kQ6_K, kQ8_0, kQ5_K, kQ2_K, kIQ4_XS}) {
    EXPECT_EQ(ChosenFor(Product(kBF16, w, kBF16, 512, 4096, 4096)),
              "gemm.bf16_any_bf16.xn.sequence.any.plain.unpack");
  }
}

TEST_F(CudaCoverage, the_kernels_of_a_model_are_of_every_family_that_takes_its_weights) {
  const CudaArch hopper{90, 'a'};
  const SynthShape preset = FindSynthPreset("tiny-test").value();
  const std::string path = test::WriteTiny(folder_, "families", preset, DataType::kQ8_0);
  const Result<ModelKernels> kernels = KernelsOfModel(GgufFile::Open(path).value(), hopper);
  ASSERT_TRUE(kernels) << kernels.error().message;
  std::set<std::string> families;
  for (const KernelSpec& spec : kernels->specs) families.emplace(spec.family.view());
  for (const char* family : {"gemv_int8", "gemv_q", "gemm_q", "gemm_chain", "copy"})
    EXPECT_TRUE(families.contains(family)) << family;
}

TEST_F(CudaCoverage, the_kernels_of_a_model_are_those_of_its_heads_too) {
  const CudaArch hopper{90, 'a'};
  for (const SynthShape& preset : SynthPresets()) {
    if (!preset.name.starts_with("tiny-test")) continue;
    SCOPED_TRACE(std::string(preset.name));
    const std::string path =
        test::WriteTiny(folder_, std::string(preset.name), preset, DataType::kF32);
    const Result<ModelKernels> kernels = KernelsOfModel(GgufFile::Open(path).value(), hopper);
    ASSERT_TRUE(kernels) << kernels.error().message;
    EXPECT_THAT(kernels->unserved, testing::IsEmpty());
    const auto has = [&](std::string_view family) {
      return std::ranges::any_of(
          kernels->specs, [&](const KernelSpec& spec) { return spec.family.view() == family; });
    };
    const bool sinks = preset.architecture == "gpt-oss";
    EXPECT_EQ(has("attention_simt"), sinks || (preset.head_dim != 64 && preset.head_dim != 128));
    EXPECT_NE(has("attention_simt"), has("attention_split"));
    EXPECT_TRUE(has("rmsnorm"));
    for (const char* family : {"route", "combine", "gemm_simt_grouped"})
      EXPECT_EQ(has(family), preset.experts > 0) << family;
  }
}

}  // namespace
}  // namespace tilewright
