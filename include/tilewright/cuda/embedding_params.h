#pragma once

// What a launch of a kernel of the family embedding consists of. The kernel includes this very
// file, so it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (rows, EmbeddingGridY, 1) CTAs. There is no
// workspace, nothing has to be zeroed. param0 to param3 of a KernelSpec are 0.

namespace tilewright::cuda {

/// out[r][:] = table[ids[r]][:], decoded to f32 and rounded once to type_d. A row whose id is -1
/// (padding) becomes zeros; one whose id names no entry becomes NaN: a kernel cannot refuse a
/// launch. All pointers are of device memory; elements of a row are adjacent.
struct EmbeddingParams {
  const void* table;  ///< [entries][hidden], type_a; blocks at even addresses
  const int* ids;     ///< [rows]
  void* out;          ///< [rows][hidden], type_d
  long long table_row_bytes;
  long long out_row;  ///< elements from row to row
  int rows, entries;
  int hidden;  ///< whole blocks
  /// 1: every row of `out`, and of a table of plain elements, is at a multiple of 16 bytes. 0: any
  /// address; plain elements are then read one by one.
  int wide;
};

/// Elements of a row that a thread has: eight, or one where plain elements are read one by one.
constexpr int EmbeddingElements(bool blocks, int wide) { return blocks || wide != 0 ? 8 : 1; }

constexpr unsigned int EmbeddingGridY(int hidden, int elements, int threads) {
  return (static_cast<unsigned int>(hidden) + static_cast<unsigned int>(elements * threads) - 1) /
         static_cast<unsigned int>(elements * threads);
}

}  // namespace tilewright::cuda
