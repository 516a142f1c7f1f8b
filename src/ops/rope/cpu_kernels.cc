#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/paged_cache.h"
#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "ops/rope/angles.h"
#include "ops/rope/cpu/rope_cpu.h"

namespace tilewright::rope {
namespace {

using CpuRope = FunctionKernel<Op, RopeImpl>;

constexpr std::int64_t kGrain = 16384;  // elements of a task, as in ops/norm

bool Converts(const Desc& desc) {
  return desc.type_in != DataType::kF32 || desc.type_out != DataType::kF32;
}

std::optional<Rejection> Feasible(const RopeImpl&, const Desc& desc) {
  const bool blocks = desc.scatter && desc.type_out == DataType::kQ8_0;
  if (RowTypeIndex(desc.type_in) < 0 || (RowTypeIndex(desc.type_out) < 0 && !blocks)) {
    return Rejection{Reason::kType,
                     Format("{} to {}", DataTypeName(desc.type_in), DataTypeName(desc.type_out)),
                     "f32, f16 or bf16 to any of them, or into a cache of q8_0"};
  }
  if (Converts(desc) && desc.head_dim > kMaxDims) {
    return Rejection{Reason::kShape, Format("head_dim = {}", desc.head_dim),
                     Format("at most {} where types differ from f32", kMaxDims)};
  }
  return std::nullopt;
}

double EstimateUs(const RopeImpl& impl, const Desc& desc, int workers) {
  const double elements = static_cast<double>(desc.rows) * desc.heads * desc.head_dim;
  return elements * impl.ns_per_element * 1e-3 / BusyWorkers(elements, kGrain, workers) +
         desc.rows * 0.01;
}

/// Cosines and sines of one position without a table.
void ComputeAngles(const Args& args, std::int64_t position, float* out) {
  if (args.table != nullptr) return args.table->Compute(position, out);
  const int half = args.params.dims / 2;
  for (int i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * Frequency(args.params, args.factors.as<const float>(), i);
    out[i] = static_cast<float>(std::cos(angle));
    out[half + i] = static_cast<float>(std::sin(angle));
  }
}

/// Turns one head after the other, through buffers of f32 where the types are others.
class Rotation {
 public:
  Rotation(const RopeImpl& impl, const Args& args)
      : args_(args),
        target_(IntoCache(args) ? args.cache : args.out),
        places_(args.cache, args.pages),
        rotate_(args.params.mode == RopeMode::kInterleaved ? impl.interleaved : impl.half_split),
        read_(impl.rows.Find(args.qk.dtype, DataType::kF32)),
        write_(impl.rows.Find(DataType::kF32, target_.dtype)) {}

  void Rows(std::int64_t begin, std::int64_t end) const {
    float computed[kMaxDims];
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position = args_.positions.as<const std::int32_t>()[row];
      if (position < 0) continue;  // padding
      const float* angles = computed;
      if (args_.table != nullptr && position < args_.table->positions()) {
        angles = args_.table->Row(position);
      } else {
        ComputeAngles(args_, position, computed);
      }
      const std::int64_t from = row * args_.qk.stride[2], to = Target(row, position);
      for (std::int64_t h = 0; h < args_.qk.shape[1]; ++h)
        Head(from + h * args_.qk.stride[1], to + h * target_.stride[1], angles);
    }
  }

 private:
  std::int64_t Target(std::int64_t row, std::int64_t position) const {
    return IntoCache(args_) ? places_.Offset(args_.slots.as<const std::int32_t>()[row], position)
                            : row * target_.stride[2];
  }

  /// Offsets in elements.
  void Head(std::int64_t from, std::int64_t to, const float* angles) const {
    const std::int64_t dims = args_.params.dims, head_dim = args_.qk.shape[0];
    float read[kMaxDims], turned[kMaxDims];  // [head_dim], where there is something to convert
    const void* source = AddressOf(args_.qk, from);
    void* target = MutableAddressOf(target_, to);
    if (read_ != nullptr) read_(source, read, head_dim);
    const float* in = read_ != nullptr ? read : static_cast<const float*>(source);
    float* out = write_ != nullptr ? turned : static_cast<float*>(target);
    rotate_(in, angles, angles + dims / 2, out, dims / 2);
    if (out != in) std::copy(in + dims, in + head_dim, out + dims);
    if (write_ != nullptr) write_(turned, target, head_dim);
  }

  const Args& args_;
  const TensorView& target_;
  const CachePlaces places_;
  const RotateHead rotate_;
  const ConvertRow read_, write_;  // nullptr: f32
};

Status Launch(const RopeImpl& impl, const Args& args, Stream stream) {
  if (args.table == nullptr) {
    if (Status status = CheckParams(args.params, args.factors.as<const float>()); !status)
      return status;
  }
  if (Status status = CheckRows(args); !status) return status;
  const std::int64_t row_elements = std::max<std::int64_t>(args.qk.shape[0] * args.qk.shape[1], 1);
  const Rotation rotation(impl, args);
  ParallelRanges(stream.exec(), args.qk.shape[2], kGrain / row_elements,
                 [&](std::int64_t begin, std::int64_t end) { rotation.Rows(begin, end); });
  return {};
}

}  // namespace

void AddKernels(Registry& registry) {
  const CpuRope::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const RopeImpl* impl : {&kRopeScalar, &kRopeAvx2, &kRopeAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuRope>(
        CpuKernelInfo(Format("rope.f32.{}", impl->isa), impl->tu, impl->features), *impl, shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::rope
