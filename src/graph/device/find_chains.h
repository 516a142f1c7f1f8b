#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tilewright/gemm.h"
#include "tilewright/graph.h"
#include "tilewright/prepared_graph.h"
#include "tilewright/rejection.h"

namespace tilewright {

/// A product that is part of a chain.
struct ChainedProduct {
  std::size_t step = 0;  ///< its own among the steps of the graph
  /// As in the chain: of what the product in front of it leaves; a norm that stands between them is its
  /// prologue.
  GemmArgs args;
  /// Where the norm behind it adds a residual: the same, with that sum as its result. Holds unless the
  /// chain ends here.
  std::optional<GemmArgs> added;
};

/// Products that follow each other, each of what the one in front of it leaves.
struct ProductChain {
  std::vector<ChainedProduct> products;

  /// The arguments of the chain of its first `count` products.
  std::vector<GemmArgs> Args(std::size_t count) const;
};

/// Why a step ends the chain that it could have been in.
struct ChainEnd {
  std::size_t step = 0;  ///< the first that is in no chain with those in front of it
  Rejection reason;
};

struct FoundChains {
  std::vector<ProductChain> chains;  ///< of two products and more
  std::vector<ChainEnd> ends;  ///< behind every product that a chain ends with or none begins with
};

/// The chains among the bound steps of a graph, from the first step on as long as they can be and of
/// cuda::kMostChainProducts at most: a product, then any number of times a product of its result, or a norm
/// of that, with or without a residual, and a product of the norm. Pure.
///
/// Products of a chain are of bf16 with constant weights of one type, in plain layout, in at most
/// kMostChainRows rows. What a chain does not write any more, as the product in front of a residual
/// and the rows behind a norm, nobody else may read. A result that is written earlier than it was
/// may not lie where the product still reads (Reuse::kBehindNext plans memory for that).
FoundChains FindChains(const Graph& graph, std::span<const std::unique_ptr<PreparedStep>> steps);

}  // namespace tilewright
