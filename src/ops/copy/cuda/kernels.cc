#include "ops/copy/cuda/kernels.h"

#include <algorithm>

#include "core/text.h"
#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/copy/cuda/copy_launch.h"
#include "ops/copy/cuda/families.h"
#include "ops/copy/cuda/kv_scatter_launch.h"

namespace tilewright {
namespace {

std::optional<Rejection> WrongTypes(DataType from, DataType to, DataType spec_from,
                                    DataType spec_to) {
  const bool bytes = spec_from == DataType::kU8;
  return Rejection{Reason::kType, Format("{} to {}", DataTypeName(from), DataTypeName(to)),
                   bytes ? std::string("equal types")
                         : Format("{} to {}", DataTypeName(spec_from), DataTypeName(spec_to))};
}

/// What `ctas` CTAs take that read and write so many bytes.
double MoveUs(double bytes, std::int64_t ctas, const DeviceSpec& device) {
  LaunchCost cost;
  cost.memory_bytes = bytes;
  cost.ctas_per_sm = 16;
  cost.ctas = std::max<std::int64_t>(ctas, 1);
  cost.in_flight_bytes = bytes / static_cast<double>(cost.ctas);
  return PredictUs(cost, device);
}

double BytesOfBoth(DataType from, DataType to, std::int64_t elements) {
  return static_cast<double>(BytesOf(from, elements)) + static_cast<double>(BytesOf(to, elements));
}

}  // namespace

namespace copy {
namespace {

std::optional<Rejection> Feasible(const KernelSpec& spec, const Desc& desc) {
  const bool fits = spec.type_a == DataType::kU8
                        ? desc.type_src == desc.type_dst && desc.type_src != DataType::kNone
                        : desc.type_src == spec.type_a && desc.type_dst == spec.type_d;
  if (!fits) return WrongTypes(desc.type_src, desc.type_dst, spec.type_a, spec.type_d);
  if (desc.rows > kMaxCopyElements / desc.cols) {
    return Rejection{Reason::kShape, Format("rows = {}, cols = {}", desc.rows, desc.cols),
                     Format("at most {} elements", kMaxCopyElements)};
  }
  return std::nullopt;
}

double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const std::int64_t elements = desc.rows * desc.cols;
  const std::int64_t in_cta = std::int64_t{spec.warps} * 32 * (desc.adjacent ? 8 : 1);
  return MoveUs(BytesOfBoth(desc.type_src, desc.type_dst, elements), elements / in_cta, device);
}

Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel, Stream stream) {
  const bool same = args.src.data == args.dst.data && args.src.dtype == args.dst.dtype &&
                    args.src.stride == args.dst.stride;
  if (same) return {};  // it is there already
  return kernel.Launch(CopyLaunch(spec, args), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // An element of the result has its own operands only.
  const CompiledFamily<Op> family{.feasible = &Feasible,
                                  .estimate_us = &EstimateUs,
                                  .launch = &Launch,
                                  .batch_invariant = &AlwaysBatchInvariant};
  return AddCompiledFamily(registry, store, CopyFamily().name, arch, family);
}

}  // namespace copy

namespace kv_scatter {
namespace {

std::optional<Rejection> Feasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.type_x != spec.type_a || desc.type_cache != spec.type_c)
    return WrongTypes(desc.type_x, desc.type_cache, spec.type_a, spec.type_c);
  if (desc.kv_heads > kMaxKvScatterRow / desc.head_dim) {
    return Rejection{Reason::kShape,
                     Format("kv_heads = {}, head_dim = {}", desc.kv_heads, desc.head_dim),
                     Format("rows of at most {} elements", kMaxKvScatterRow)};
  }
  return std::nullopt;
}

double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const std::int64_t row = std::int64_t{desc.kv_heads} * desc.head_dim;
  const std::int64_t in_cta = std::int64_t{spec.warps} * 32 * 8;
  return MoveUs(BytesOfBoth(desc.type_x, desc.type_cache, row * desc.rows),
                desc.rows * ((row + in_cta - 1) / in_cta), device);
}

Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel, Stream stream) {
  return kernel.Launch(KvScatterLaunch(spec, args), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // An element of the result has its own operands only.
  const CompiledFamily<Op> family{.feasible = &Feasible,
                                  .estimate_us = &EstimateUs,
                                  .launch = &Launch,
                                  .batch_invariant = &AlwaysBatchInvariant};
  return AddCompiledFamily(registry, store, KvScatterFamily().name, arch, family);
}

}  // namespace kv_scatter
}  // namespace tilewright
