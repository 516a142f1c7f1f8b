#pragma once

// What a launch of a kernel of the family rmsnorm consists of. The kernel includes this very file,
// so it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (RmsNormGridX, 1, 1) CTAs. There is no
// workspace, nothing has to be zeroed.
//
// Fields of a KernelSpec that the family names itself:
//
//   param0  packs of 16 bytes of input that a thread keeps in registers, 1 to 4
//   param1, param2, param3  0

namespace tilewright::cuda {

/// out[r][c] = h[r][c] / sqrt(mean over c of h[r][c]^2 + epsilon) * weight[c], where h is `in`, or,
/// with SpecEpilogue::kAdd, the sum in + residual rounded to the residual's type, which is written
/// to `sum`. All pointers are of device memory; strides in elements; elements of a row are
/// adjacent. Any width and alignment; 16-byte loads when every row is aligned to a pack (8 elements
/// of a 16-bit input, 4 of f32; at most 16 bytes) and the width is a multiple of it.
///
/// Rows come in groups of `group_rows`, the heads of a token for one: row r is row r % group_rows
/// of group r / group_rows, at that many times `x_group` plus that many times `x_stride`.
struct RmsNormParams {
  const void* in;        ///< [rows][width], type_a
  const void* weight;    ///< [width], type_b
  const void* residual;  ///< [rows][width], type_c; epilogue kAdd only
  void* sum;             ///< [rows][width], type_c; may be `residual`, or `in` if of its type
  void* out;             ///< [rows][width], type_d; may be `in` if of its type
  long long in_stride, residual_stride, sum_stride, out_stride;
  long long in_group, residual_group, sum_group, out_group;
  int rows;        ///< of all groups
  int group_rows;  ///< `rows`: there is one group
  int width;
  float epsilon;
};

/// A CTA for each row.
constexpr unsigned int RmsNormGridX(int rows) { return static_cast<unsigned int>(rows); }

/// Elements that a CTA of `warps` warps keeps in registers between its two uses of a row, `packs`
/// packs a thread; a wider row is read twice.
constexpr int RmsNormCapacity(int warps, int packs, bool f32_input) {
  return warps * 32 * packs * (f32_input ? 4 : 8);
}

}  // namespace tilewright::cuda
