#pragma once

#include "tilewright/kernel_family.h"

namespace tilewright {

/// decode_token: all layers of a token in one launch (token_kernel.cuh). Fields of the spec: type_b and
/// type_c the formats of its weights, type_a of activations and caches; warps, and stages of the ring
/// of each; param0 head dimension; param1 warps and param2 parts of attention, as those of
/// attention_decode whose bits it gives; param3 stages of their rings.
KernelFamily DecodeTokenFamily();

/// The decode_token kernel for weights of these formats (kNone: one format only).
KernelSpec DecodeTokenSpec(CudaArch arch, DataType weights, DataType others, int head_dim,
                           int attention_warps, int parts);

/// Threads of a CTA: `warps` warps and the one that loads.
std::uint32_t DecodeTokenThreads(const KernelSpec& spec);

/// Bytes of the rings of all warps of such a kernel.
int DecodeTokenRingBytes(const KernelSpec& spec);

Status AddDecodeFamily(KernelFamilies& families);

}  // namespace tilewright
