#pragma once

// What a launch of a kernel of the family elementwise consists of. The kernel includes this very
// file, so it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (ElementwiseGridX, 1, 1) CTAs. There is no
// workspace, nothing has to be zeroed. param0 to param3 of a KernelSpec are 0.

namespace tilewright::cuda {

/// In the order of elementwise::Function.
enum class ElementwiseFunction : int {
  kAdd,      ///< a + b
  kMul,      ///< a * b
  kSilu,     ///< a / (1 + e^-a); b is not read
  kSwiGlu,   ///< a / (1 + e^-a) * b
  kGelu,     ///< a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))); b is not read
  kGeGlu,    ///< the same times b
  kSoftcap,  ///< softcap * tanh(a / softcap); b is not read
  /// g / (1 + e^-1.702 g) * (u + 1), where g is a but at most `limit`, u is b from -limit to limit
  kClampedSwiGlu
};
/// Whether a function reads a alone.
constexpr bool ElementwiseIsUnary(ElementwiseFunction function) {
  return function == ElementwiseFunction::kSilu || function == ElementwiseFunction::kGelu ||
         function == ElementwiseFunction::kSoftcap;
}

/// Rows of an operand; elements of a row are adjacent. `row`: elements from row to row along
/// extents[0], [1] and [2]; 0 repeats a row.
struct ElementwiseOperand {
  void* data;
  long long row[3];
};

/// out = function(a, b), computed in f32 and rounded once to type_d, over rows of `cols` elements
/// that count through three extents. All pointers are of device memory; `out` may be `a` or `b`
/// where both are one view.
struct ElementwiseParams {
  ElementwiseOperand a, b, out;  ///< type_a, type_b, type_d
  ElementwiseFunction function;
  unsigned int extents[3];
  long long cols;
  int wide;                        ///< 1: every row of every operand is at a multiple of 16 bytes
  unsigned int row_items;          ///< of a row: ElementwiseElements each
  unsigned int items;              ///< row_items for every row; below 2^32 - 2^20
  float softcap, inverse_softcap;  ///< of kSoftcap: positive, and 1 / softcap
  float limit;                     ///< of kClampedSwiGlu: positive
};

/// Elements of a thread.
constexpr int ElementwiseElements(int wide) { return wide != 0 ? 8 : 1; }

constexpr unsigned int ElementwiseGridX(unsigned int items, int threads) {
  return (items + static_cast<unsigned int>(threads) - 1) / static_cast<unsigned int>(threads);
}

}  // namespace tilewright::cuda
