#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "engine/op.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// Causal attention of m new rows over a KV cache of many sequences. The key of a choice: counts,
/// not contents.
struct AttentionDesc {
  DataType type_q = DataType::kF32;   ///< q and out
  DataType type_kv = DataType::kF32;  ///< cache: f32, f16, bf16 or q8_0
  std::int32_t rows = 1;
  std::int32_t heads = 1, kv_heads = 1, head_dim = 64;
  std::int32_t threads = 1;
  std::int32_t reserved = 0;

  auto operator<=>(const AttentionDesc&) const = default;
};
std::string KeyOf(const AttentionDesc& desc);

/// q [head_dim, heads, m] and out [head_dim * heads, m] of one type, any row stride; caches of one
/// type, [head_dim, kv_heads, context, slots], contiguous. Row r reads positions 0 .. positions[r]
/// of slot slots[r], whose keys and values are already there (its own included).
struct AttentionArgs {
  TensorView q, k_cache, v_cache, positions, slots, out;
  float scale = 1.0f;
  void* workspace = nullptr;  ///< AttentionWorkspaceBytes
  std::size_t workspace_bytes = 0;
};

using AttentionKernel = OpKernel<AttentionDesc, AttentionArgs>;
using AttentionRegistry = OpRegistry<AttentionDesc, AttentionArgs>;

/// The problem of a call on `threads` workers; kInvalidArgument, naming the view and the field, if
/// the views do not fit together. Reads no element.
Result<AttentionDesc> DescOf(const AttentionArgs& args, int threads);

/// Scratch for any kernel of the room and any contents of positions, 64-byte aligned.
std::size_t AttentionWorkspaceBytes(const AttentionDesc& desc, std::int64_t context);

void AddAttention(AttentionRegistry& registry);

/// What ReferenceAttention answers before it reads an element: by types and shapes alone.
Status CheckReference(const AttentionArgs& args);

/// The oracle, in float64; q and out f64, f32, f16 or bf16, caches of these or q8_0. Single thread;
/// allocates.
Status ReferenceAttention(const AttentionArgs& args);

}  // namespace tilewright
