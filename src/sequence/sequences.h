#pragma once

#include <span>
#include <vector>

#include "tilewright/copy.h"
#include "tilewright/elementwise.h"
#include "tilewright/gemm.h"

namespace tilewright {

/// Adds the sequences to `gemm`, made of the kernels that are in the registries now: our own, but
/// for the reference kernels. Call it last; the kernels must outlive `gemm`.
void AddSequences(Registry& gemm, const copy::Registry& copies,
                  const elementwise::Registry& elementwise);

/// By the name: docs/kernel_ids.md.
bool IsSequence(const KernelInfo& kernel);

/// The kernels that a launch of `kernel` with `config` consists of, in their order: those of the
/// steps of a sequence, else itself.
std::vector<const KernelBase*> PartsOf(const KernelBase& kernel, const LaunchConfig& config);

namespace sequence {

// Each adds a sequence to `gemm`; the other lists are the kernels that its steps may use. Without a
// suitable kernel in a list, nothing is added.

/// Block weights as the file has them are unpacked to f32, for GPUs also to the 16-bit type of the
/// activations, then multiplied: the weights are decoded once, however many rows there are.
void AddUnpackGemm(Registry& gemm, std::span<Kernel* const> products,
                   std::span<copy::Kernel* const> copies);

/// The product without the residual, then the sum: what the fused residual is worth. One for each
/// layout of the weights.
void AddGemmAdd(Registry& gemm, std::span<Kernel* const> products,
                std::span<elementwise::Kernel* const> adders);

}  // namespace sequence
}  // namespace tilewright
