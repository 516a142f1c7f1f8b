#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "engine/op.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// A copy with conversion between float types: the key of a choice.
struct CopyDesc {
  DataType type_src = DataType::kF32;
  DataType type_dst = DataType::kF32;
  std::int32_t rows = 1;
  std::int32_t cols = 1;
  std::int32_t threads = 1;  ///< workers of the executor

  auto operator<=>(const CopyDesc&) const = default;
};
std::string KeyOf(const CopyDesc& desc);

/// dst = src, element by element, rounded to nearest even. Any row strides (dimension 0 adjacent); equal shapes. The two must not
/// overlap, unless they are the same view of one type.
struct CopyArgs {
  TensorView src, dst;
};

/// Rows of keys or values into a KV cache: the key of a choice.
struct KvScatterDesc {
  DataType type_src = DataType::kF32;
  DataType type_cache = DataType::kF16;  ///< f32, f16, bf16, q8_0 (or f64)
  std::int32_t rows = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 64;
  std::int32_t threads = 1;

  auto operator<=>(const KvScatterDesc&) const = default;
};
std::string KeyOf(const KvScatterDesc& desc);

/// cache[., h, positions[r], slots[r]] = src[., h, r]. src [head_dim, kv_heads, m] with any head and row strides; cache
/// [head_dim, kv_heads, context, slots] contiguous; positions and slots m int32, all checked before anything is written. Two rows of
/// one slot and position leave either of them.
struct KvScatterArgs {
  TensorView src, cache, positions, slots;
};

using CopyKernel = OpKernel<CopyDesc, CopyArgs>;
using CopyRegistry = OpRegistry<CopyDesc, CopyArgs>;
using KvScatterKernel = OpKernel<KvScatterDesc, KvScatterArgs>;
using KvScatterRegistry = OpRegistry<KvScatterDesc, KvScatterArgs>;

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit together.
Result<CopyDesc> DescOf(const CopyArgs& args, int threads);
Result<KvScatterDesc> DescOf(const KvScatterArgs& args, int threads);

void AddCopy(CopyRegistry& registry);
void AddKvScatter(KvScatterRegistry& registry);

/// The oracles: through float64, any float type on either side, and q8_0 as the cache's. Single thread; allocate.
Status ReferenceCopy(const CopyArgs& args);
Status ReferenceKvScatter(const KvScatterArgs& args);

}  // namespace tilewright
