#pragma once

#include <cstdint>
#include <vector>

#include "tilewright/kernel_family.h"

/// Families `gemv_bf16` (weights of bf16, f16 and f32), `gemv_stream` (of bf16 and f16), `gemv_q` (block formats that
/// gemv_codes.cuh has Codes for, as GGUF has them) and `gemv_int8` (block formats of int8_codes.cuh,
/// activations rounded to int8): few rows of activations times a matrix.
/// README.md names the fields of their specs.

namespace tilewright {

KernelFamily GemvBf16Family();
KernelFamily GemvQuantisedFamily();
/// One row, as fast as memory: persistent CTAs; lines aligned to 16 bytes and k a multiple of eight.
KernelFamily GemvStreamFamily();

/// One to eight rows, rounded to int8, as fast as memory: persistent CTAs. The catalog has up to
/// four: with eight gemv_q was faster on an H200.
KernelFamily GemvInt8Family();

/// Whether gemv_codes.cuh has Codes for weights of `type`.
bool HasGemvCodes(DataType type);
/// Whether those codes take an offset back, or add one, for each scale.
bool GemvCodesHaveOffset(DataType type);

/// Adds them all. kInvalidArgument if a name is taken.
Status AddGemvFamilies(KernelFamilies& families);

/// The kernels for weights of one type on one architecture, for activations of f32 and bf16 and 1,
/// 2, 4 or 8 rows at once, with the epilogues add and swiglu for some. Plain weights: warps that
/// split k, and the streams of GemvStreamSpecs. Blocks: CTAs of 4 and 8 warps that split k and, for
/// one row, with deeper rings and with more rows of W; for formats of block_codes.cuh one of eight
/// warps for each number of rows. Empty for other types. Deterministic order, each once.
std::vector<KernelSpec> GemvSpecsForWeight(DataType weight, CudaArch arch);
/// Those of gemv_stream alone.
std::vector<KernelSpec> GemvStreamSpecs(DataType weight, CudaArch arch);
/// The longest row that a kernel of gemv_stream has room for.
int GemvStreamMaxK(const KernelSpec& spec);

/// Those of gemv_int8 for weights of one type: one row of f32 and bf16 with the epilogues add, which
/// serves plain products too, and swiglu; one row, 2 and 4 of bf16 with add, and for logits of f32.
/// The same of bf16, without an addend, with rows that are normalised first, logits of up to two. One row of bf16
/// has further shapes: for matrices of small models, and one that the copy engine feeds. Empty for other
/// types.
std::vector<KernelSpec> GemvInt8Specs(DataType weight, CudaArch arch);
/// Whether a kernel of this room normalises the rows of x.
inline bool GemvNormalises(const KernelSpec& spec) {
  const bool can =
      spec.family == FamilyName("gemv_int8") || spec.family == FamilyName("gemv_stream");
  return can && spec.params[2] == 1;
}
/// The longest row that a kernel of gemv_int8 has room for, what k must be a multiple of, and what the
/// address of every row of W must be.
int GemvInt8MaxK(const KernelSpec& spec);
int GemvInt8KGranule(const KernelSpec& spec);
/// Values of a row that the lanes of a warp multiply at a time: with fewer some are idle.
int GemvInt8Turn(const KernelSpec& spec);
int GemvInt8RowAlignment(const KernelSpec& spec);
/// The shared memory that rows of `k` values take.
std::uint32_t GemvInt8Smem(const KernelSpec& spec, int k);
/// What a launch with n rows of W asks for on a GPU of `sm_count` multiprocessors. Where W is large,
/// so much that an SM has no room for a second CTA: launches behind each other would else put two
/// of theirs on some SMs and none on others, and a layer of Llama-3.1-8B took 16 % (q4_k) to 23 %
/// (q8_0) longer. Where W is small, room for the next launch is worth 0.7 us.
std::uint32_t GemvInt8LaunchSmem(const KernelSpec& spec, int n, int k, int sm_count);
/// Whether a CTA of the next launch fits beside one of that launch.
bool GemvInt8LeavesRoom(const KernelSpec& spec, int n, int k, int sm_count);

}  // namespace tilewright
