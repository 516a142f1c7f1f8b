#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "graph/device/find_chains.h"
#include "tilewright/artifact_store.h"
#include "tilewright/device.h"
#include "tilewright/graph.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/prepared_graph.h"

namespace tilewright {

/// A chain and the kernel that computes its first `count` products in one launch.
struct ChosenChain {
  const ProductChain* chain = nullptr;
  std::size_t count = 0;
  KernelSpec spec;

  std::size_t first_step() const { return chain->products.front().step; }
  std::size_t last_step() const { return chain->products[count - 1].step; }
};

/// The best kernel for as many products of `chain` as one can have, two at least. A rejection says why there
/// is none. Pure.
tl::expected<ChosenChain, Rejection> ChooseChain(const ProductChain& chain,
                                                 const DeviceSpec& device);

/// Puts one launch in the place of the steps of each chain; they share memory of their own. Errors, after
/// which `steps` are as they were: of the compiler and the device; kUnsupported, with the reason, where a
/// kernel does not fit on a multiprocessor or cannot be launched so.
Status BindChains(std::span<const ChosenChain> chains, ArtifactStore& store, Device& device,
                  std::vector<std::unique_ptr<PreparedStep>>& steps);

}  // namespace tilewright
