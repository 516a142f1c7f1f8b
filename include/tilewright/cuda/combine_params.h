#pragma once

// What a launch of a kernel of the family combine consists of. The kernel includes this very file,
// so it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (CombineGridX, rows, 1) CTAs.
//
// Fields of a KernelSpec that the family names itself: none; param0 to param3 are 0.

namespace tilewright::cuda {

/// Rows that are sums of others, as tilewright/combine.h states. All pointers are of device memory,
/// each aligned to its element; strides in elements; elements of a row are adjacent.
struct CombineParams {
  const void* x;        ///< [rows * used][cols], type_a
  const int* places;    ///< [rows][used], adjacent; others than 0 to rows * used - 1 are left out
  const void* weights;  ///< [rows][used], type_a
  const void* shared;   ///< [rows][cols], type_a, or null
  const void* gate;     ///< [rows], type_a, gate_stride apart; read where `shared` is not null
  void* out;            ///< [rows][cols], type_a
  long long x_stride, weights_stride, shared_stride, gate_stride, out_stride;
  int rows;  ///< at most 65,535
  int cols, used;
  int wide;  ///< rows of x, shared and out are aligned to 16 bytes
};

/// Values of a thread.
inline constexpr int kCombinePack = 8;

constexpr int CombineGridX(int cols, int threads) {
  return (cols - 1) / (threads * kCombinePack) + 1;
}

}  // namespace tilewright::cuda
