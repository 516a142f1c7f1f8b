#pragma once

#include "tilewright/cuda/kv_cache_params.h"

// What a launch of a kernel of the family kv_scatter consists of. The kernel includes this very
// file, so it is plain C++, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (rows, KvScatterGridY, 1) CTAs. There is no
// workspace, nothing has to be zeroed. param0 to param3 of a KernelSpec are 0.

namespace tilewright::cuda {

/// The heads of every row of x go to its place in the cache (KvCacheRows), converted from type_a to
/// type_c. x [head_dim, heads, rows], elements of a head adjacent, other strides free and in
/// elements.
struct KvScatterParams {
  const void* x;
  long long x_head, x_row;
  KvCacheRows cache;
  int rows, heads, head_dim;
  int wide;  ///< 1: head_dim is a multiple of 8 and every head, of x and the cache, of 16 bytes
};

/// Of elements, or with `wide` of eight of them, one a thread.
constexpr unsigned int KvScatterGridY(int heads, int head_dim, int wide, int threads) {
  const int items = heads * (wide != 0 ? head_dim / 8 : head_dim);
  return static_cast<unsigned int>((items + threads - 1) / threads);
}

}  // namespace tilewright::cuda
