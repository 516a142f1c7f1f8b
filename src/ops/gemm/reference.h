#pragma once

#include "tilewright/gemm.h"

namespace tilewright {

/// The float64 oracle: D = alpha * A * B + beta * C, every type, order, leading dimension,
/// quantisation (U and V), striding and epilogue of the contract, with operands decoded exactly and
/// sums in f64; D is rounded once, to its type. `desc` names the types, striding, quantisation and
/// group axis; shapes, orders and leading dimensions come from the layouts of `args`. Both operands
/// must be plain. With an indexed operand, scales follow the memory row. With Epilogue::kGatedSilu,
/// D[., 16 p + i] = silu(alpha * g) * (alpha * u) + beta * C where g and u are columns 32 p + i and
/// 32 p + 16 + i of A * B.
///
/// Runs on `executor`, or on the calling thread. Allocates m * k and some columns of doubles.
/// kUnsupported for packed operands or a type it cannot decode; kInvalidArgument for a layout that
/// contradicts itself. Thread-safe.
Status ReferenceGemm(const GemmArgs& args, const GemmDesc& desc, Executor* executor = nullptr);

/// Largest error a right kernel may make, as a part of the element's magnitude sum |alpha| * sum |a
/// b| + |beta c|, from k, and from how far the activations are rounded:
/// - f32 sums: rounding errors of a chain of k additions, in the mean sqrt(k) units of 2^-24, four
/// deviations and a few roundings more;
/// - bf16: each activation is off by at most 2^-8 of itself, sums of independent ones by 1 /
/// sqrt(k) of that: three times the bound;
/// - int8 with one scale for 32 or more activations: off by at most half a step of the largest, the
/// same law.
double GemmTolerance(const GemmDesc& desc, Precision activations);

/// How far a result is from the oracle.
struct GemmError {
  double worst = 0;  ///< largest |got - want| / allowed; the result is right where this is <= 1.
                     ///< Infinity for a NaN out of place
  int row = 0, col = 0;  ///< where
  double got = 0, want = 0;
};

/// With max_rows or max_cols > 0 a check looks at that many rows and columns only, evenly spread,
/// the first and last among them: what the tuner's gate uses on large problems.
struct GemmCheck {
  Precision activations = Precision::kF32;
  int max_rows = 0, max_cols = 0;
  Executor* executor = nullptr;
};

/// Compares args.d, as a kernel left it, with the oracle. `args.c` must still hold what the kernel
/// read (a copy, where C was D), and b must be plain. Errors as ReferenceGemm.
Result<GemmError> CheckGemm(const GemmArgs& args, const GemmDesc& desc, const GemmCheck& check);

}  // namespace tilewright
