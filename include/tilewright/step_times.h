#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/prepared_graph.h"
#include "tilewright/result.h"
#include "tilewright/tensor_op.h"

namespace tilewright {

/// The steps of a graph that do the same work: one operation on equal shapes and types by the same
/// kernel, as it comes in every layer.
struct StepGroup {
  TensorOp op = TensorOp::kNone;
  std::string
      name;  ///< of the first of its nodes; of a step that computes several, of its last one
  std::string kernel;  ///< as in PreparedStep
  std::string spec;
  int count = 0;  ///< steps of the group in one run of the graph
  // Of one step:
  double us = 0;     ///< median
  double bytes = 0;  ///< least bytes read and written: weights, activations, positions of a cache
  double ops = 0;    ///< multiplications and additions of products and attention
};

struct StepTimes {
  std::vector<StepGroup> groups;  ///< in the order of their first steps
  double pass_us = 0;             ///< of a whole run of the graph, median
};

/// What the rows of a pass make of a cache that the graph does not tell.
struct CacheLoad {
  double bytes_per_position = 0;  ///< of keys and values, in one layer
  double positions_read = 0;      ///< of all sequences together
  double positions_scored = 0;    ///< of all rows together: the sum of their lengths
};

/// Times the steps of `graph` by groups. The steps of a group run one after another, as many times
/// as it takes to hide the start of the first, captured as a whole where the device can: those of
/// a large model find their weights in memory, as in a pass, and those of a small one in the cache,
/// where a pass finds most of them too. What lies between two kernels of a pass, and what they do
/// to each other's caches, is in `pass_us` only.
///
/// `graph` has run with its inputs in place. Steps that work in place change what later runs read,
/// so the values of the activations mean nothing afterwards; so do the rows of a cache that the
/// graph writes. Medians of `repeat` samples. Errors: those of the steps; kInvalidArgument for a
/// graph that is stale() and for repeat < 1.
Result<StepTimes> TimeSteps(const PreparedGraph& graph, Device& device, Stream stream,
                            const CacheLoad& cache, int repeat);

}  // namespace tilewright
