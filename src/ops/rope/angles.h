#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/rope/rope.h"

namespace tilewright::rope {

/// Radians a position of pair `i`. Precondition: CheckParams accepted the parameters.
double Frequency(const RopeParams& params, const float* factors, int i);

/// Radians a position as fractions of a turn in units of 2^-64, whole turns dropped.
std::vector<std::uint64_t> TurnsOf(std::span<const double> frequencies);

/// The rules that Table::Make documents.
Status CheckParams(const RopeParams& params, const float* factors);

inline bool IntoCache(const Args& args) { return args.cache.data != nullptr; }
/// Checks that every row is padding, or has a valid position and, if there is a cache, a place in
/// it; the error names the first that does not.
Status CheckRows(const Args& args);

}  // namespace tilewright::rope
