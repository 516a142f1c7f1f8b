#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <tl/expected.hpp>

#include "decode/token_schedule.h"
#include "tilewright/artifact_store.h"
#include "tilewright/device.h"
#include "tilewright/graph.h"
#include "tilewright/prepared_graph.h"
#include "tilewright/rejection.h"

namespace tilewright {

/// Steps of a graph that are the layers of one token and its logits, and the attention whose bits
/// they give.
struct TokenSteps {
  std::size_t first = 0, count = 0;
  decode::TokenModel model;
  int attention_warps = 0, parts = 0;
};

/// The layers among the bound steps of `graph`, by what their kernels read and write. A rejection says what
/// is in their place: another operation, another kernel, a result that something else reads too.
tl::expected<TokenSteps, Rejection> FindToken(const Graph& graph,
                                              std::span<const std::unique_ptr<PreparedStep>> steps,
                                              const DeviceSpec& device);

/// One launch for all of them. kUnsupported, with the reason, where the kernel cannot have such weights
/// or cannot be resident; errors of the compiler and the device.
Result<std::unique_ptr<PreparedStep>> BindToken(const TokenSteps& token, NodeId last,
                                                ArtifactStore& store, Device& device,
                                                Stream stream);

}  // namespace tilewright
