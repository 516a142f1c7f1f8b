#pragma once

#include "ops/attention/attention.h"

namespace tilewright::attention {

/// Checks that every row is padding, or that its slot, its position and the pages that it reads are
/// in range.
Status CheckRows(const Args& args);

/// The first position that a row at `position` sees.
inline std::int32_t FirstSeen(std::int32_t position, std::int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

/// Whether rows bring keys and values, which are turned and put into the caches first.
inline bool HasKeys(const Args& args) { return args.k.data != nullptr; }

/// For kernels that read keys, values and turned queries only.
std::optional<Rejection> RejectNewRows(const Desc& desc);

/// Whether operands of products may be rounded to bf16.
inline bool AllowsBF16(const Desc& desc) {
  if (desc.precision == Precision::kAuto) return BytesOf(desc.type_kv, 32) < 32 * sizeof(float);
  return desc.precision != Precision::kF32;
}

/// Kernels that multiply in bf16 need this; the others round nothing.
constexpr std::uint32_t kRoundingFeatures = kFeatureAvx512Bf16;

/// The problem of arguments that fit together.
Desc ShapeOf(const Args& args, const CallTerms& terms);

}  // namespace tilewright::attention
