#pragma once

#include <cstdint>
#include <vector>

#include "tilewright/graph.h"

namespace tilewright {

/// Node indices between which a tensor's memory holds something: from the node that makes it to the
/// last that reads it, through all its aliases. A kept tensor lives to the end.
struct Liveness {
  std::int32_t first = 0, last = 0;
};

/// The node that owns the memory of `id`: follows alias_of to its end.
NodeId StorageOf(const Graph& graph, NodeId id);

/// By node id. Aliases carry the life of their storage.
std::vector<Liveness> ComputeLiveness(const Graph& graph);

}  // namespace tilewright
