#pragma once

#include "core/convert_row.h"
#include "ops/top_k/cpu/top_k_cpu.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

/// The best so far, best first, in the caller's arrays.
struct TopKList {
  float* values;
  std::int32_t* ids;
  int k;
  int count = 0;
  float threshold = -__builtin_inff();  ///< what a value must exceed to be in the list

  /// Columns come in ascending order, so one that equals a value of the list is behind it.
  void Offer(float value, std::int64_t column) {
    if (!(value > threshold)) return;
    int at = count < k ? count++ : k - 1;
    for (; at > 0 && values[at - 1] < value; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = value;
    ids[at] = static_cast<std::int32_t>(column);
    if (count == k) threshold = values[k - 1];
  }
};

/// One pass in blocks of eight vectors: only a block whose maximum exceeds the threshold is looked
/// at again. Of random values about k ln(cols / k) are ever offered.
template <class In>
int TopKRow(const void* source, std::int64_t cols, int k, float* values, std::int32_t* ids) {
  constexpr std::int64_t kBlock = 8 * kLanes;
  const auto* in = static_cast<const typename In::Type*>(source);
  const F32Vec infinity = Splat(__builtin_inff());
  TopKList list{values, ids, k};
  I32Vec ordered = infinity == infinity;
  std::int64_t c = 0;
  for (; c + kBlock <= cols; c += kBlock) {
    F32Vec top = In::Load(in + c);
    ordered &= top < infinity;
    for (int u = 1; u < 8; ++u) {
      const F32Vec x = In::Load(in + c + u * kLanes);
      ordered &= x < infinity;
      top = SelectVec(x > top, x, top);
    }
    if (MaxLane((top > Splat(list.threshold)) & 1) == 0) continue;
    for (std::int64_t i = c; i < c + kBlock; ++i) list.Offer(In::LoadOne(in + i), i);
  }
  bool tail_ordered = true;
  for (; c < cols; ++c) {
    const float x = In::LoadOne(in + c);
    tail_ordered = tail_ordered && x < __builtin_inff();
    list.Offer(x, c);
  }
  return tail_ordered && MaxLane((~ordered) & 1) == 0 ? list.count : -1;
}

constexpr TopKImpl MakeTopK(const char* isa, const char* tu, std::uint32_t features, double ns) {
  return {isa, tu, features, ns, {&TopKRow<AsF32>, &TopKRow<AsF16>, &TopKRow<AsBF16>}};
}

}  // namespace
}  // namespace tilewright
