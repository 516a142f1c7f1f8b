#pragma once

#include <cstdint>

#include "device/cuda/launch.h"
#include "ops/rope/rope.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// RoPE of q and of k with the scatter of k and v into the KV cache, in one pass over memory: what
/// rope::Args of q, rope::Args of k and the KV scatter of k and of v do one after the other, except
/// for rows without a place in the cache (RopeKvParams). All memory is the device's.
struct RopeKvArgs {
  TensorView q, q_out;                   ///< [head_dim, heads, rows]; without heads no data
  TensorView k, v;                       ///< [head_dim, kv_heads, rows]; without kv_heads no data
  TensorView k_cache, v_cache;           ///< of one type and shape: rope::Args
  TensorView positions, slots;           ///< [rows] int32; slots are read with kv_heads only
  TensorView pages;                      ///< of both caches; without data they are contiguous
  const std::uint64_t* turns = nullptr;  ///< [params.dims / 2], RopeTurns
  std::int32_t* fault = nullptr;         ///< optional; the caller zeroes it, and after reading it
  RopeParams params;                     ///< mode and dims; the rest is in `turns`
};

/// The launch of a rope_kv kernel: a CTA for a row and some of its heads. `spec` passed the
/// family's check. Refused are views of other types than the spec's, an odd head dimension, shapes
/// that do not fit together, missing tables, an address that is no multiple of its element, and
/// more heads than the grid has room for. No workspace.
cuda::LaunchResult RopeKvLaunch(const KernelSpec& spec, const RopeKvArgs& args);

/// Those of a call with keys and values, whose table is in the memory of the device.
RopeKvArgs RopeKvArgsOf(const rope::Args& args);

}  // namespace tilewright
