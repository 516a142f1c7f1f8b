#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "engine/op.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// A copy of `rows` rows of `cols` elements, converting the type: the key of a choice.
struct CopyDesc {
  DataType type_src = DataType::kF32;
  DataType type_dst = DataType::kF32;
  std::int64_t rows = 1;
  std::int32_t cols = 1;
  bool adjacent = true;      ///< dimension 0 of both views has stride 1
  std::int32_t threads = 1;  ///< workers of the executor

  auto operator<=>(const CopyDesc&) const = default;
};
std::string KeyOf(const CopyDesc& desc);

/// dst = src, element by element. Equal shapes, any strides >= 0 in every dimension (block types:
/// dimension 0 adjacent). Equal types copy bytes, whatever the type; f64, f32, f16 and bf16 convert
/// into each other, rounding to nearest even. The views do not overlap, or are one.
struct CopyArgs {
  TensorView src, dst;
};

using CopyKernel = OpKernel<CopyDesc, CopyArgs>;
using CopyRegistry = OpRegistry<CopyDesc, CopyArgs>;

/// Rows of keys or values into a cache: the key of a choice.
struct KvScatterDesc {
  DataType type_x = DataType::kF32;
  DataType type_cache = DataType::kF32;
  std::int32_t rows = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 64;
  std::int32_t threads = 1;  ///< workers of the executor

  auto operator<=>(const KvScatterDesc&) const = default;
};
std::string KeyOf(const KvScatterDesc& desc);

/// cache[:, :, positions[r], slots[r]] = x[:, :, r] for every row r. x [head_dim, kv_heads, m],
/// cache [head_dim, kv_heads, context, slots], any strides but dimension 0 adjacent; positions and
/// slots m int32, no pair twice (unchecked: the rows may run at the same time). The cache is f64,
/// f32, f16, bf16, or q8_0 with head_dim a multiple of 32 (encoded as EncodeRow does). A position
/// or slot out of range is kInvalidArgument, a position that is the context's length or more
/// kExhausted; both are found before anything is written.
struct KvScatterArgs {
  TensorView x, cache, positions, slots;
};

using KvScatterKernel = OpKernel<KvScatterDesc, KvScatterArgs>;
using KvScatterRegistry = OpRegistry<KvScatterDesc, KvScatterArgs>;

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<CopyDesc> DescOf(const CopyArgs& args, int threads);
Result<KvScatterDesc> DescOf(const KvScatterArgs& args, int threads);

void AddCopy(CopyRegistry& registry);
void AddKvScatter(KvScatterRegistry& registry);

/// What the oracles answer before they read an element: by types and shapes alone.
Status CheckReference(const CopyArgs& args);
Status CheckReference(const KvScatterArgs& args);

/// The oracles: element by element through float64. Single thread; KV scatter to q8_0 allocates.
Status ReferenceCopy(const CopyArgs& args);
Status ReferenceKvScatter(const KvScatterArgs& args);

}  // namespace tilewright
