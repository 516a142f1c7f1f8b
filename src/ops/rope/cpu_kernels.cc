#include <algorithm>
#include <array>
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

bool Converts(const Desc& desc) {
  return desc.type_in != DataType::kF32 || desc.type_out != DataType::kF32 ||
         (desc.kv_heads > 0 && desc.type_cache != DataType::kF32);
}

std::optional<Rejection> Feasible(const RopeImpl&, const Desc& desc) {
  const bool blocks = desc.scatter && desc.type_out == DataType::kQ8_0;
  if (desc.kv_heads > 0 && RowTypeIndex(desc.type_cache) < 0 &&
      desc.type_cache != DataType::kQ8_0) {
    return Rejection{Reason::kType, Format("a cache of {}", DataTypeName(desc.type_cache)),
                     "f32, f16, bf16 or q8_0"};
  }
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
  const double elements =
      static_cast<double>(desc.rows) * (desc.heads + 2 * desc.kv_heads) * desc.head_dim;
  return elements * impl.ns_per_element * 1e-3 / BusyWorkers(elements, kGrainElements, workers) +
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

/// Cosines and sines of the positions of rows.
class RowAngles {
 public:
  explicit RowAngles(const Args& args) : args_(args) {}

  /// dims / 2 cosines, then as many sines; good until the next call.
  const float* Of(std::int64_t position) {
    if (args_.table != nullptr && position < args_.table->positions())
      return args_.table->Row(position);
    ComputeAngles(args_, position, computed_);
    return computed_;
  }

 private:
  const Args& args_;
  float computed_[kMaxDims];
};

/// Takes the heads of one tensor to where they go, through buffers of f32 where the types are
/// others.
class HeadMover {
 public:
  /// Turns args.qk; where `rotate` is nullptr the heads go as they are.
  HeadMover(const RopeImpl& impl, const Args& args, RotateHead rotate)
      : source_(args.qk),
        target_(IntoCache(args) ? args.cache : args.out),
        places_(args.cache, args.pages),
        slots_(IntoCache(args) ? args.slots.as<const std::int32_t>() : nullptr),
        dims_(rotate != nullptr ? args.params.dims : 0),
        rotate_(rotate),
        read_(impl.rows.Find(source_.dtype, DataType::kF32)),
        write_(impl.rows.Find(DataType::kF32, target_.dtype)) {}

  std::int64_t heads() const { return source_.shape[1]; }

  /// Heads `begin` to `end` of a row whose position has these angles.
  void Row(std::int64_t row, std::int64_t position, std::int64_t begin, std::int64_t end,
           const float* angles) const {
    const std::int64_t from = row * source_.stride[2];
    const std::int64_t to =
        slots_ != nullptr ? places_.Offset(slots_[row], position) : row * target_.stride[2];
    for (std::int64_t h = begin; h < end; ++h)
      Head(from + h * source_.stride[1], to + h * target_.stride[1], angles);
  }

 private:
  /// Offsets in elements.
  void Head(std::int64_t from, std::int64_t to, const float* angles) const {
    const std::int64_t head_dim = source_.shape[0];
    float read[kMaxDims], turned[kMaxDims];  // [head_dim], where there is something to convert
    const void* source = AddressOf(source_, from);
    void* target = MutableAddressOf(target_, to);
    if (dims_ == 0 && source_.dtype == target_.dtype) {
      std::memcpy(target, source, BytesOf(target_.dtype, head_dim));
      return;
    }
    if (read_ != nullptr) read_(source, read, head_dim);
    const float* in = read_ != nullptr ? read : static_cast<const float*>(source);
    float* out = write_ != nullptr ? turned : static_cast<float*>(target);
    if (dims_ > 0) rotate_(in, angles, angles + dims_ / 2, out, dims_ / 2);
    if (out != in) std::copy(in + dims_, in + head_dim, out + dims_);
    if (write_ != nullptr) write_(turned, target, head_dim);
  }

  TensorView source_, target_;
  CachePlaces places_;
  const std::int32_t* slots_;  // nullptr: not into a cache
  std::int64_t dims_;          // 0: not turned
  RotateHead rotate_;
  ConvertRow read_, write_;  // nullptr: f32
};

/// The heads of a row one after the other: those of `qk`, and then, where there are, those of keys
/// and of values.
class RowMover {
 public:
  RowMover(const RopeImpl& impl, const Args& args, RotateHead rotate)
      : parts_{HeadMover(impl, QueriesOrAll(args), rotate), HeadMover(impl, KeysOf(args), rotate),
               HeadMover(impl, ValuesOf(args), nullptr)},
        count_(HasKeys(args) ? 3 : 1) {}

  std::int64_t heads() const {
    std::int64_t heads = 0;
    for (std::size_t i = 0; i < count_; ++i) heads += parts_[i].heads();
    return heads;
  }
  /// Heads `begin` to `end` of those.
  void Row(std::int64_t row, std::int64_t position, std::int64_t begin, std::int64_t end,
           const float* angles) const {
    for (std::size_t i = 0; i < count_; ++i) {
      const std::int64_t heads = parts_[i].heads();
      if (begin < heads && end > 0) {
        parts_[i].Row(row, position, std::max<std::int64_t>(begin, 0), std::min(end, heads),
                      angles);
      }
      begin -= heads, end -= heads;
    }
  }

 private:
  static Args QueriesOrAll(const Args& args) { return HasKeys(args) ? QueriesOf(args) : args; }
  static Args ValuesOf(const Args& args) {
    Args values = KeysOf(args);
    values.qk = args.v;
    values.cache = args.v_cache;
    return values;
  }

  std::array<HeadMover, 3> parts_;
  std::size_t count_;
};

Status Launch(const RopeImpl& impl, const Args& args, Stream stream) {
  if (args.table == nullptr) {
    if (Status status = CheckParams(args.params, args.factors.as<const float>()); !status)
      return status;
  }
  if (Status status = CheckRows(args); !status) return status;
  const RowMover mover(
      impl, args, args.params.mode == RopeMode::kInterleaved ? impl.interleaved : impl.half_split);
  const auto* positions = args.positions.as<const std::int32_t>();
  // A task is a range of heads, counted through all rows: a long row is several.
  const std::int64_t heads = mover.heads();
  ParallelRanges(stream.exec(), args.qk.shape[2] * heads,
                 kGrainElements / std::max<std::int64_t>(args.qk.shape[0], 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   RowAngles angles(args);
                   while (begin < end) {
                     const std::int64_t row = begin / heads, first = row * heads;
                     const std::int64_t next = std::min(end, first + heads);
                     if (const std::int64_t position = positions[row]; position >= 0)
                       mover.Row(row, position, begin - first, next - first, angles.Of(position));
                     begin = next;
                   }
                 });
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
