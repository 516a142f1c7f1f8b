#pragma once

#include <optional>

#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/operation.h"
#include "tilewright/rejection.h"

namespace tilewright {

/// Why the kernel of `spec`, of any family of this room, cannot compute `args`, whose pointers are
/// of device memory: types, orders and extents that are not the spec's or contradict each other,
/// operands that are packed, grouped, indexed or scaled, a leading dimension below its line, an
/// address that is no multiple of its element, a beta without the epilogue add; with the epilogue swiglu
/// rows of weights that are no pairs of blocks; a prologue that the kernel does not have, or the lack of
/// one that it has. C is looked at only where it is read: with the
/// epilogue add and beta != 0. nullopt when only the family's own needs are left to check. Looks at
/// addresses, not behind them.
std::optional<Rejection> CheckGemmArgs(const KernelSpec& spec, const GemmArgs& args);

/// Extents of a product that passed CheckGemmArgs. n: rows of weights; with the epilogue swiglu D
/// has half as many columns.
inline GemmShape ShapeOf(const GemmArgs& args) {
  return {.m = args.d_layout.rows, .n = args.b_layout.cols, .k = args.a_layout.cols};
}

}  // namespace tilewright
