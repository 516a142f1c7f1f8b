#include "decode/families.h"

#include <algorithm>
#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "decode/token_program.h"
#include "ops/attention/cuda/families.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "tilewright/cuda/attention_params.h"

namespace tilewright {
namespace {

/// As most of the memory's rate takes on an H200 in gemv_int8.
constexpr int kWarps = 16, kStages = 4;
/// Parts that Int8Product and attention are made of at least.
constexpr int kMostParts = 8;

int StageBytes(DataType weights) {
  const TypeInfo& type = GetTypeInfo(weights);
  const int row = tw::TokenRowBytes(type.block_bytes, type.block_elements);
  return row * tw::TokenStageRows(row);
}

std::optional<Rejection> CheckWeights(const char* field, DataType type) {
  if (!GemvInt8Specs(type, CudaArch{90, 'a'}).empty()) return std::nullopt;
  return Reject(Reason::kType, Format("{} = {}", field, DataTypeName(type)),
                "a block format of gemv_int8");
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (s.arch.number < 90) {
    return Reject(Reason::kDevice, s.arch.ToString(), "sm_90 or newer, which have bulk copies");
  }
  if (s.type_a != DataType::kBF16 || s.type_d != DataType::kF32) {
    return Reject(
        Reason::kType,
        Format("type_a = {}, type_d = {}", DataTypeName(s.type_a), DataTypeName(s.type_d)),
        "bf16 activations and f32 logits");
  }
  if (auto no = CheckWeights("type_b", s.type_b)) return no;
  if (auto no = CheckWeights("type_c", s.type_c)) return no;
  constexpr std::array kWarpCounts{4, 8, 16};
  if (auto no = CheckOneOf("warps", s.warps, kWarpCounts)) return no;
  if (auto no = CheckRange("stages", s.stages, 2, 8)) return no;
  constexpr std::array kHeadDims{64, 128};
  if (auto no = CheckOneOf("param0", s.params[0], kHeadDims)) return no;
  constexpr std::array kAttentionWarps{2, 4, 8};
  if (auto no = CheckOneOf("param1", s.params[1], kAttentionWarps)) return no;
  if (s.params[1] > s.warps) {
    return Reject(Reason::kShape, Format("param1 = {}", s.params[1]),
                  Format("at most {} warps", s.warps));
  }
  constexpr std::array kParts{2, 4, kMostParts};
  if (auto no = CheckOneOf("param2", s.params[2], kParts)) return no;
  if (auto no = CheckRange("param3", s.params[3], 1, 4)) return no;
  if (s.tile_m != 1 || s.tile_n != 0 || s.tile_k != 0 || s.split_k != 0 || s.cluster_m != 0 ||
      s.cluster_n != 0 || s.epilogue != SpecEpilogue::kNone) {
    return Reject(Reason::kShape, "a field that decode_token does not use is set",
                  "tile_m = 1, all others 0");
  }
  return std::nullopt;
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  // Of its steps a program has as many as fit.
  return {.threads = DecodeTokenThreads(s), .dynamic_smem_bytes = MaxSmemBytes(s.arch)};
}

/// Some spilled registers cost less than a warp.
ResourceLimits Limits(const KernelSpec& s) {
  const int fit = std::min(65536 / static_cast<int>(DecodeTokenThreads(s)) / 8 * 8, 255);
  return {.max_registers = static_cast<std::uint32_t>(fit),
          .max_spill_bytes = 256,
          .max_stack_bytes = 128};
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 90) return specs;
  using enum DataType;
  // What models of one format and their logits have.
  constexpr std::pair<DataType, DataType> kFormats[] = {
      {kQ4_K, kQ6_K}, {kQ4_0, kQ6_K}, {kQ4_1, kQ8_0}, {kQ8_0, kQ8_0}};
  for (const auto& [weights, others] : kFormats) {
    // Small models have narrow heads.
    specs.push_back(weights == kQ4_1 ? DecodeTokenSpec(arch, weights, others, 64, 4, 8)
                                     : DecodeTokenSpec(arch, weights, others, 128, 8, 8));
  }
  return specs;
}

}  // namespace

std::uint32_t DecodeTokenThreads(const KernelSpec& spec) { return spec.warps * 32u + 32; }

int DecodeTokenRingBytes(const KernelSpec& spec) {
  return spec.warps * spec.stages * std::max(StageBytes(spec.type_b), StageBytes(spec.type_c));
}

KernelSpec DecodeTokenSpec(CudaArch arch, DataType weights, DataType others, int head_dim,
                           int attention_warps, int parts) {
  KernelSpec spec;
  spec.family = "decode_token";
  spec.arch = arch;
  spec.type_a = DataType::kBF16;
  spec.type_b = weights;
  spec.type_c = others == DataType::kNone ? weights : others;
  spec.type_d = DataType::kF32;
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.tile_m = 1;
  spec.warps = kWarps;
  spec.stages = kStages;
  // Narrow heads leave room for the copies of more positions ahead.
  spec.params = {head_dim, attention_warps, parts, head_dim <= 64 ? 3 : 1};
  return spec;
}

KernelFamily DecodeTokenFamily() {
  return {.name = "decode_token",
          .source = "decode/decode_token.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &Limits,
          .catalog = &Catalog,
          .waits_for_prerequisites = false};
}

Status AddDecodeFamily(KernelFamilies& families) { return families.Add(DecodeTokenFamily()); }

}  // namespace tilewright
