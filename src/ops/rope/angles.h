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

/// Whether keys and values go into caches beside the heads of qk.
inline bool HasKeys(const Args& args) { return args.k.data != nullptr; }
/// Whether the heads of qk go into a cache.
inline bool IntoCache(const Args& args) { return args.cache.data != nullptr && !HasKeys(args); }

/// The two rotations that a call with keys and values consists of beside the scatter of the values:
/// of the queries, and of the keys into their cache.
inline Args QueriesOf(const Args& args) {
  Args queries = args;
  queries.k = queries.v = queries.cache = queries.v_cache = queries.slots = queries.pages = {};
  return queries;
}
inline Args KeysOf(const Args& args) {
  Args keys = args;
  keys.qk = args.k;
  keys.out = keys.k = keys.v = keys.v_cache = {};
  return keys;
}

/// Checks that every row is padding, or has a valid position and, if there is a cache, a place in
/// it; the error names the first that does not.
Status CheckRows(const Args& args);

}  // namespace tilewright::rope
