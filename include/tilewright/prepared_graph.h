#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/graph.h"
#include "tilewright/kernel.h"
#include "tilewright/result.h"

namespace tilewright {

class KernelDispatch;
class ReadyLaunch;

/// Counts changes of something that prepared graphs depend on: memory that moved, choices that were
/// made anew. Used by one thread at a time.
class Epoch {
 public:
  std::uint64_t now() const { return now_; }
  void Advance() {
    ++now_;
    changes_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Advances of all epochs of the process: while this stays, so does each of them. Any thread.
  static std::uint64_t Changes() { return changes_.load(std::memory_order_relaxed); }

 private:
  std::uint64_t now_ = 0;
  inline static std::atomic<std::uint64_t> changes_{0};
};

/// Growable device memory for intermediates and for the scratch memory of kernels, shared by graphs
/// that do not run at the same time. Growing moves it, which makes every graph prepared before
/// stale. One thread at a time.
class Arena {
 public:
  explicit Arena(Device& device) : device_(device) {}

  /// Makes size() at least `bytes`; growing discards the contents. kOutOfMemory leaves the old
  /// memory as it is.
  Status Reserve(std::size_t bytes);
  void* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }
  Device& device() const { return device_; }
  const Epoch& epoch() const { return epoch_; }

 private:
  Device& device_;
  DeviceMemory memory_;
  Epoch epoch_;
};

/// One bound operation of a prepared graph, with kernel, launch parameters, arguments and workspace
/// resolved. Run only launches.
class PreparedStep {
 public:
  virtual ~PreparedStep() = default;
  virtual Status Run(Stream stream) const = 0;

  /// Whether Run does nothing but submit work to the stream, so that a replay of that work may
  /// stand for it.
  virtual bool only_submits() const { return false; }
  /// What Run queues, where that is settled and Run does nothing else; nullptr: call Run.
  virtual const ReadyLaunch* ready() const { return nullptr; }
  /// Whether what ran is right, where the device itself does not tell; once the work has ended.
  virtual Status Outcome() const { return {}; }

  NodeId node = kNoNode;     ///< the last one of a step that computes several
  std::vector<NodeId> also;  ///< those in front of it
  std::string kernel;        ///< "" if a dispatch other than DeviceDispatch runs the node
  std::string spec;          ///< SpecText
  std::string why;           ///< Choice::why
};

/// Rows of the activations of a chain of products at most: beyond, separate ones keep the memory busy.
inline constexpr std::int32_t kMostChainRows = 64;

/// How the nodes of a graph are bound: each by itself, or chains of products as one launch each.
enum class BindAs : std::uint8_t { kSteps, kChained };

/// A graph that is ready to run: verified, its memory planned and bound, a kernel bound to every
/// node. It owns the graph and its steps; device, dispatch, arena and the memory of the leaves must
/// outlive it. One thread at a time. Running allocates nothing, locks nothing, hashes nothing and
/// looks nothing up (except what a vendor library does inside its own calls).
class PreparedGraph {
 public:
  /// Launches every step on `stream`, in order; stops at the first error, which names the node. The
  /// work completes in stream order; on the CPU, before Run returns. kInvalidArgument if stale().
  Status Run(Stream stream) const;

  /// Captures the work of all steps, which Run submits as a whole from then on, with the same
  /// results. Takes as long as some runs do, so it is for graphs that will run often. `stream` is of
  /// `device`, which the graph was prepared for. kUnsupported, and Run stays as it was, where the
  /// device cannot capture or a step needs the host, as the calls of a decorator do;
  /// kInvalidArgument if stale().
  Status Capture(Device& device, Stream stream);
  bool captured() const { return captured_ != nullptr; }

  /// An error where a step has found that its work is not right, as a kernel does whose CTAs wait for
  /// each other in vain. To be asked when the work of Run has ended, before its results are used.
  Status Outcome() const;

  /// Whether something that this graph depends on has changed since it was prepared: its arena or
  /// the workspace moved, or the dispatch forgot its decisions. If so, prepare it again.
  bool stale() const;

  const Graph& graph() const { return graph_; }
  std::span<const std::unique_ptr<PreparedStep>> steps() const { return steps_; }
  const MemoryPlan& memory() const { return memory_; }

 private:
  friend Result<std::unique_ptr<PreparedGraph>> PrepareGraph(Graph, KernelDispatch&, Arena&,
                                                             BindAs);
  PreparedGraph() = default;
  Status Fresh() const;
  Status Submit(Stream stream) const;
  struct Watched {
    const Epoch* epoch;
    std::uint64_t seen;
  };
  // Destroyed from the last on: the captured work before its steps, and those before the graph.
  Graph graph_;
  MemoryPlan memory_;
  std::vector<Watched> watched_;
  std::vector<std::unique_ptr<PreparedStep>> steps_;
  // What every run reads stands together: a launch is short enough for cache misses to show.
  std::vector<const ReadyLaunch*> ready_;  // of each step; nullptr: it has none
  mutable std::uint64_t fresh_at_ = 0;     // Epoch::Changes() when it was last found not stale
  std::unique_ptr<DeviceGraph> captured_;
};

/// What a dispatch returns when it binds a graph: the steps, and the epochs they depend on.
struct BoundSteps {
  std::vector<std::unique_ptr<PreparedStep>> steps;
  std::vector<const Epoch*> epochs;
};

/// Verifies `graph`, assigns every intermediate a place in `arena` (which grows if needed), and has
/// `dispatch` bind every node. Errors: VerifyGraph's; kOutOfMemory; and for a node that no kernel
/// can run, kUnsupported with every kernel's reason. BindAs::kChained is kUnsupported, with the
/// reason, where the graph has no chain or the dispatch no kernel for one; its results differ from
/// those of kSteps within rounding (docs/fusion.md). Everything that can stall (compiling, allocating,
/// deciding) happens here.
Result<std::unique_ptr<PreparedGraph>> PrepareGraph(Graph graph, KernelDispatch& dispatch,
                                                    Arena& arena, BindAs bind = BindAs::kSteps);

}  // namespace tilewright
