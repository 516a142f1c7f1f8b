#include "ops/rope/cuda/families.h"

#include <algorithm>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/rope/angles.h"

namespace tilewright {
namespace {

constexpr int kMaxHeadDim = 1024, kMaxTileN = 256;

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (auto no = CheckPlainFloat("type_c", s.type_c)) return no;
  if (auto no = CheckPlainFloat("type_d", s.type_d)) return no;
  if (s.type_b != DataType::kNone)
    return Reject(Reason::kType, Format("type_b = {}", DataTypeName(s.type_b)), "none");
  if (s.epilogue != SpecEpilogue::kNone)
    return Reject(Reason::kEpilogue, std::string(SpecEpilogueName(s.epilogue)), "none");
  const int head_dim = s.params[0];
  if (head_dim < 2 || head_dim > kMaxHeadDim || head_dim % 2 != 0) {
    return Reject(Reason::kShape, Format("param0 = {}", head_dim),
                  Format("an even head dimension, 2 to {}", kMaxHeadDim));
  }
  if (s.params[1] != 0 && s.params[1] != 1) {
    return Reject(Reason::kShape, Format("param1 = {}", s.params[1]),
                  "0 (adjacent pairs) or 1 (half-split)");
  }
  if (auto no = CheckRange("tile_n", s.tile_n, 1, kMaxTileN)) return no;
  if (s.stages != 0 || s.tile_m != 0 || s.tile_k != 0 || s.split_k != 0 || s.cluster_m != 0 ||
      s.cluster_n != 0 || s.params[2] != 0 || s.params[3] != 0) {
    return Reject(Reason::kShape, "a field that rope_kv does not use is set",
                  "stages, tile_m, tile_k, split_k, clusters, param2, param3 = 0");
  }
  return std::nullopt;
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  for (const int head_dim : {64, 128}) {
    for (const bool neox : {false, true}) {
      const std::vector<KernelSpec> own = RopeSpecs(head_dim, neox, arch);
      specs.insert(specs.end(), own.begin(), own.end());
    }
  }
  return specs;
}

}  // namespace

KernelFamily RopeKvFamily() {
  return {.name = "rope_kv",
          .source = "ops/rope/cuda/rope_kv.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddRopeFamilies(KernelFamilies& families) {
  if (Status added = families.Add(RopeKvFamily()); !added) return added;
  return families.Add(RopeFamily());
}

std::vector<KernelSpec> RopeSpecs(int head_dim, bool neox, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80 || head_dim < 2 || head_dim > kMaxHeadDim || head_dim % 2 != 0) return specs;
  constexpr int kWarps = 4;
  for (const DataType in : {DataType::kF32, DataType::kBF16}) {
    for (const DataType cache : {DataType::kF32, DataType::kF16, DataType::kBF16}) {
      KernelSpec spec;
      spec.family = "rope_kv";
      spec.arch = arch;
      spec.type_a = in;
      spec.type_c = cache;
      spec.type_d = in;
      spec.order_a = spec.order_b = Order::kRowMajor;
      // Eight elements for every thread: one decoded token is then several CTAs, not one long one.
      spec.tile_n =
          static_cast<std::uint16_t>(std::clamp(kWarps * 32 * 8 / head_dim, 1, kMaxTileN));
      spec.warps = kWarps;
      spec.params = {head_dim, neox ? 1 : 0, 0, 0};
      specs.push_back(spec);
    }
  }
  return specs;
}

std::vector<std::uint64_t> RopeTurns(std::span<const double> frequencies) {
  return rope::TurnsOf(frequencies);
}

}  // namespace tilewright
