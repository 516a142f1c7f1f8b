#pragma once

#include "engine/rope_angles.h"
#include "ops/rope/rope.h"

namespace tilewright::rope {

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
