#pragma once

#include "tilewright/device_spec.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/operation.h"

namespace tilewright {

/// How many CTAs share an output tile of a gemm_mma kernel for this product, each with a part of k:
/// few tiles leave multiprocessors idle otherwise. Depends on the number of multiprocessors and their
/// shared memory alone, so that the same product is summed in the same order whenever it runs.
int GemmMmaSplits(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device);

/// Sums and counters of the CTAs that share tiles; nothing where none do.
WorkspaceSize GemmMmaWorkspace(const KernelSpec& spec, const GemmShape& shape,
                               const DeviceSpec& device);

/// CTAs whose shared memory a multiprocessor has room for.
int GemmMmaCtasPerSm(const KernelSpec& spec, const DeviceSpec& device);

/// A step of k of a CTA: the barrier, the fragments and the products are one chain of latencies. On
/// an H200, products of 32 rows by 4096 x 4096 and by 4096 x 14336 took 0.34 to 0.38 us for each.
inline constexpr double kGemmMmaStepUs = 0.36;
/// To leave sums, to arrive and to add them up.
inline constexpr double kGemmMmaMergeUs = 2;

}  // namespace tilewright
