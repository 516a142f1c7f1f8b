#include "ops/rope/cuda/kernels.h"

#include "core/text.h"
#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/rope/cuda/families.h"
#include "ops/rope/cuda/rope_kv_launch.h"
#include "ops/rope/cuda/rope_launch.h"
#include "tilewright/cuda/rope_kv_params.h"
#include "tilewright/cuda/rope_params.h"

namespace tilewright::rope {
namespace {

std::int64_t AllHeads(const Desc& desc) { return desc.heads + 2 * std::int64_t{desc.kv_heads}; }

std::optional<Rejection> WrongTypes(const KernelSpec& spec, const Desc& desc) {
  if (desc.type_in == spec.type_a && desc.type_out == spec.type_d) return std::nullopt;
  return Rejection{Reason::kType,
                   Format("{} to {}", DataTypeName(desc.type_in), DataTypeName(desc.type_out)),
                   Format("{} to {}", DataTypeName(spec.type_a), DataTypeName(spec.type_d))};
}

std::optional<Rejection> WrongShape(const Desc& desc) {
  constexpr std::int64_t kMaxElements = 1 << 26;
  if (desc.head_dim % 2 == 0 && AllHeads(desc) * desc.head_dim <= kMaxElements) return std::nullopt;
  return Rejection{Reason::kShape,
                   Format("heads = {}, head_dim = {}", AllHeads(desc), desc.head_dim),
                   Format("an even head dimension, rows of at most {} elements", kMaxElements)};
}

std::optional<Rejection> HeadsFeasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.kv_heads > 0)
    return Rejection{Reason::kShape, Format("kv_heads = {}", desc.kv_heads), "heads of one tensor"};
  if (auto no = WrongTypes(spec, desc)) return no;
  return WrongShape(desc);
}

std::optional<Rejection> KvFeasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.kv_heads == 0)
    return Rejection{Reason::kShape, "heads of one tensor", "keys and values beside queries"};
  if (auto no = WrongTypes(spec, desc)) return no;
  if (desc.type_cache != spec.type_c) {
    return Rejection{Reason::kType, Format("a cache of {}", DataTypeName(desc.type_cache)),
                     std::string(DataTypeName(spec.type_c))};
  }
  return WrongShape(desc);
}

double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const std::int64_t head = std::int64_t{desc.rows} * desc.head_dim;
  const std::int64_t out = head * desc.heads, cached = head * 2 * desc.kv_heads;
  const int cta_heads = cuda::RopeCtaHeads(desc.head_dim, 1, spec.warps * 32);
  LaunchCost cost;
  cost.memory_bytes = static_cast<double>(BytesOf(spec.type_a, out + cached)) +
                      static_cast<double>(BytesOf(spec.type_d, out));
  if (cached > 0) cost.memory_bytes += static_cast<double>(BytesOf(spec.type_c, cached));
  cost.ctas_per_sm = 16;
  cost.ctas = desc.rows * ((AllHeads(desc) + cta_heads - 1) / cta_heads);
  cost.in_flight_bytes = cost.memory_bytes / static_cast<double>(cost.ctas);
  cost.cta_us = 0.5;  // the frequencies, their angles and the barrier come before the first load
  return PredictUs(cost, device);
}

Status LaunchHeads(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
                   Stream stream) {
  return kernel.Launch(RopeLaunch(spec, args), stream);
}

Status LaunchKv(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
                Stream stream) {
  return kernel.Launch(RopeKvLaunch(spec, RopeKvArgsOf(args)), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // An element of the result has its own operands only.
  const CompiledFamily<Op> heads{.feasible = &HeadsFeasible,
                                 .estimate_us = &EstimateUs,
                                 .launch = &LaunchHeads,
                                 .batch_invariant = &AlwaysBatchInvariant};
  const CompiledFamily<Op> kv{.feasible = &KvFeasible,
                              .estimate_us = &EstimateUs,
                              .launch = &LaunchKv,
                              .batch_invariant = &AlwaysBatchInvariant};
  const auto add = [&](const KernelFamily& family, const CompiledFamily<Op>& compiled) {
    return AddCompiledFamily(registry, store, family.name, arch, compiled);
  };
  if (Status added = add(RopeFamily(), heads); !added) return added;
  return add(RopeKvFamily(), kv);
}

}  // namespace tilewright::rope
