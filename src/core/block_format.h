#pragma once

#include <cstdint>

#include "core/formats/formats.h"
#include "tilewright/result.h"
#include "tilewright/types.h"

namespace tilewright {

/// Decodes `n` consecutive elements of any DataType. f32 results are exact for every code of every
/// block format, except that adding a minimum rounds once (so that every order of operations, fused
/// or not, gives the same bits); i8x32, whose scale is f32, rounds once too. f64 results are always
/// exact. kInvalidArgument if n is not a multiple of the block, kUnsupported for kNone. Scalar:
/// this is the reference that kernels are checked against. `source` needs no alignment.
/// Thread-safe.
Status DecodeRow(DataType type, const void* source, std::int64_t n, float* out);
Status DecodeRow(DataType type, const void* source, std::int64_t n, double* out);

/// Encodes `n` finite values: f64, f32, f16, bf16 and f8_e4m3 (saturating) round to nearest even;
/// block formats use their Encode (core/formats/, core/i8x32.h). Non-finite values in a block give
/// an unspecified block, but in i8x32 a scale of NaN. Errors as DecodeRow; integer types are
/// kUnsupported.
Status EncodeRow(DataType type, const float* source, std::int64_t n, void* out);
/// The same of f64: float types (IsFloatType) round once, others encode what is rounded to f32.
Status EncodeRow(DataType type, const double* source, std::int64_t n, void* out);

}  // namespace tilewright
