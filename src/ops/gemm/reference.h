#pragma once

#include "tilewright/gemm.h"

namespace tilewright {

/// The float64 oracle: D = alpha * A * B + beta * C, every type, order, leading dimension,
/// quantisation (U and V), striding and epilogue of the contract, with operands decoded exactly and
/// sums in f64; D is rounded once, to its type. `desc` names the types, striding, quantisation and
/// group axis; shapes, orders and leading dimensions come from the layouts of `args`. Both operands
/// must be plain. With Prologue::kRmsNorm the rows of A are normalised in f64 first, and rounded
/// nowhere. With an indexed operand, scales follow the memory row. With Epilogue::kGatedSilu,
/// D[., 16 p + i] = silu(alpha * g) * (alpha * u) + beta * C where g and u are columns 32 p + i and
/// 32 p + 16 + i of A * B.
///
/// Runs on `executor`, or on the calling thread. Allocates m * k and some columns of doubles.
/// kUnsupported for packed operands or a type it cannot decode; kInvalidArgument for a layout that
/// contradicts itself. Thread-safe.
Status ReferenceGemm(const GemmArgs& args, const GemmDesc& desc, Executor* executor = nullptr);

/// The oracle as the only kernel of a registry: what MakeReferenceDispatch runs.
void AddReference(Registry& registry);

/// What CheckGemm allows for f32 sums, as a part of an element's magnitude sum |alpha| * sum |a b|
/// + |beta c|: a chain of k additions, each off by at most 2^-24 of a partial sum that is never
/// larger than the magnitude sum. For roundings that fall either way as chance will, evenly spread,
/// the sum of their errors has a deviation below 2^-24 sqrt(k / 3): seven deviations, and a few
/// roundings more. Not a bound for operands all alike, whose roundings can all point one way.
double GemmTolerance(const GemmDesc& desc);

/// How far a result is from the oracle.
struct GemmError {
  double worst = 0;  ///< largest |got - want| / allowed; the result is right where this is <= 1.
                     ///< Infinity for a NaN out of place
  int row = 0, col = 0;  ///< where
  double got = 0, want = 0;
  std::int64_t compared = 0;  ///< elements that were looked at
  /// Roots of the sums of squares over them: of got - want, of want, and of the magnitude sums.
  double error_l2 = 0, want_l2 = 0, magnitude_l2 = 0;
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
///
/// Allowed are GemmTolerance, the rounding of D, and, element by element, what rounded activations
/// can do at worst, whichever way each is rounded:
/// - bf16: |alpha| * sum 2^-8 |a b|, half a unit in the last of eight bits;
/// - int8 with one scale for each 32 consecutive k: |alpha| * sum s |b|, where s is half a step, a
///   254th of the largest |a| of the block. A kernel with longer blocks is held to these too.
/// - int8 with one scale a row and a column (kW8A8): nothing. Both operands are rounded so before the
///   oracle multiplies them.
/// With Epilogue::kGatedSilu both factors carry their errors into the product (|silu'| <= 1.1).
Result<GemmError> CheckGemm(const GemmArgs& args, const GemmDesc& desc, const GemmCheck& check);

}  // namespace tilewright
