#pragma once

// What a launch of a kernel of the family copy consists of. The kernel includes this very file, so
// it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (CopyGridX, 1, 1) CTAs. There is no
// workspace, nothing has to be zeroed. param0 to param3 of a KernelSpec are 0.
//
// With type_a = type_d = u8 a kernel copies bytes, of elements of any type; else it converts f32,
// bf16 and f16 into each other, or decodes blocks, and rounds once to type_d.

namespace tilewright::cuda {

/// Strides of an operand, in units of CopyParams.
struct CopyOperand {
  long long col;     ///< from unit to unit
  long long row[3];  ///< along extents[0], [1] and [2]
};

/// dst[i] = src[i] over rows of `cols` units that count through three extents. A unit is an
/// element, of blocks too; in a copy of bytes it is `unit_bytes` bytes, of which every address and
/// stride is a multiple. All pointers are of device memory; dst may be src where both are one view.
struct CopyParams {
  const void* src;  ///< type_a; blocks at even addresses, col = 1, cols whole blocks
  void* dst;        ///< type_d
  CopyOperand from, to;
  long long cols;
  unsigned int extents[3];
  int unit_bytes;  ///< of a copy of bytes: 1, 2, 4, 8 or 16; else 0
  /// 1: col is 1 in both, every row of dst is at a multiple of 16 bytes, and so is every row of src
  /// unless it is blocks. 0: any address; plain elements are then read one by one.
  int wide;
  unsigned int row_items;  ///< of a row, CopyItems
  unsigned int items;      ///< row_items for every row; below 2^32 - 2^20
};

/// Units that a thread copies at a time. `blocks`: type_a is one of blocks; `bytes`: of bytes.
constexpr int CopyUnits(bool blocks, bool bytes, int wide) {
  return bytes ? 1 : blocks || wide != 0 ? 8 : 1;
}

/// Items of a thread: a copy of bytes keeps several on their way.
constexpr int CopyItemsOfThread(bool bytes) { return bytes ? 4 : 1; }

constexpr unsigned int CopyGridX(unsigned int items, int items_of_thread, int threads) {
  const unsigned int in_cta = static_cast<unsigned int>(items_of_thread * threads);
  return (items + in_cta - 1) / in_cta;
}

}  // namespace tilewright::cuda
