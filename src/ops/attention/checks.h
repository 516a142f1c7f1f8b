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

/// The problem of arguments that fit together.
Desc ShapeOf(const Args& args, const CallTerms& terms);

}  // namespace tilewright::attention
