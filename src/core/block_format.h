#pragma once

#include <cstdint>

#include "core/formats/formats.h"
#include "tilewright/result.h"
#include "tilewright/types.h"

namespace tilewright {

/// Values of `n` consecutive elements of any DataType. f32 results are exact for every code of
/// every block format, but where a minimum is added: that rounds once (so every order of
/// operations, fused or not, gives the same bits). f64 results are exact for all.
/// kInvalidArgument if n is not a multiple of the block, kUnsupported for kNone. Scalar: this is
/// the reference that kernels are checked against. `source` needs no alignment. Thread-safe.
Status DecodeRow(DataType type, const void* source, std::int64_t n, float* out);
Status DecodeRow(DataType type, const void* source, std::int64_t n, double* out);

/// Encodes `n` finite values: f64, f32, f16, bf16, f8_e4m3 (saturating) round to nearest even; the
/// block formats as their Encode (core/formats/) says. Non-finite values in a block give an
/// unspecified block. Errors as DecodeRow; integer types are kUnsupported.
Status EncodeRow(DataType type, const float* source, std::int64_t n, void* out);

}  // namespace tilewright
