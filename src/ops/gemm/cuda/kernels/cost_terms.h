#pragma once

#include <cstdint>

#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/types.h"

// What several predictions consist of.

namespace tilewright {

inline double Bytes(DataType type, double elements) {
  const TypeInfo& info = GetTypeInfo(type);
  return elements * info.block_bytes / info.block_elements;
}

/// Operands and result, each once.
inline double LeastBytes(const KernelSpec& spec, const GemmDesc& desc) {
  const double m = desc.m, n = desc.n, k = desc.k;
  const bool adds = desc.scaling != Scaling::kOneZero;
  return Bytes(spec.type_a, m * k) + Bytes(spec.type_b, n * k) +
         Bytes(spec.type_d, m * n * (adds ? 2 : 1));
}

inline double CeilOf(double count, double size) {
  const auto whole = static_cast<std::int64_t>(size);
  return static_cast<double>((static_cast<std::int64_t>(count) + whole - 1) / whole);
}

/// Between tiles that the memory makes equal, the one with fewer rows that there are not.
inline constexpr double kMissingRowUs = 0.01;

}  // namespace tilewright
