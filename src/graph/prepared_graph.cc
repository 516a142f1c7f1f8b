#include "tilewright/prepared_graph.h"

#include <utility>

#include "core/text.h"
#include "device/ready_launch.h"
#include "graph/node_view.h"
#include "tilewright/kernel_dispatch.h"

namespace tilewright {
namespace {

/// The named calls work in the default stream of their device. Where a graph runs in another one,
/// each call takes its place there by two events.
struct Detour {
  std::unique_ptr<DeviceEvent> before, after;
};

/// A node that a dispatch runs by its named call: for users' engines and decorators.
class CalledStep final : public PreparedStep {
 public:
  CalledStep(const Graph& graph, NodeId id, KernelDispatch& dispatch,
             std::shared_ptr<const Detour> detour)
      : graph_(graph),
        dispatch_(dispatch),
        device_(*dispatch.device()),
        detour_(std::move(detour)) {
    node = id;
  }
  Status Run(Stream stream) const override {
    const Stream of_calls = device_.default_stream();
    if (stream.native == of_calls.native) return Call();
    if (Status s = device_.Record(*detour_->before, stream); !s) return s;
    if (Status s = device_.Wait(of_calls, *detour_->before); !s) return s;
    if (Status s = Call(); !s) return s;
    if (Status s = device_.Record(*detour_->after, of_calls); !s) return s;
    return device_.Wait(stream, *detour_->after);
  }

 private:
  Status Call() const { return DispatchNode(graph_, graph_.node(node), dispatch_); }

  const Graph& graph_;
  KernelDispatch& dispatch_;
  Device& device_;
  std::shared_ptr<const Detour> detour_;
};

}  // namespace

Status Arena::Reserve(std::size_t bytes) {
  if (bytes <= memory_.size()) return {};
  Result<DeviceMemory> larger = device_.Allocate(bytes);
  if (!larger) return Fail(larger.error());
  memory_ = std::move(*larger);
  epoch_.Advance();
  return {};
}

Result<BoundSteps> KernelDispatch::BindSteps(const Graph& graph) {
  if (Status status = Prepare(graph); !status) return Fail(status.error());
  auto before = device()->CreateEvent(), after = device()->CreateEvent();
  if (!before) return Fail(before.error());
  if (!after) return Fail(after.error());
  const auto detour = std::make_shared<const Detour>(Detour{std::move(*before), std::move(*after)});
  BoundSteps bound;
  for (const TensorNode& node : graph.nodes()) {
    if (!Computes(node.op)) continue;
    if (auto no = Supports(graph, node))
      return AtNode(node, Error{ErrorCode::kUnsupported, no->ToString()});
    bound.steps.push_back(std::make_unique<CalledStep>(graph, node.id, *this, detour));
  }
  return bound;
}

Result<BoundSteps> KernelDispatch::BindChained(const Graph&) {
  return Fail(ErrorCode::kUnsupported,
              Format("the dispatch '{}' has no kernel for chains of products", name()));
}

Result<std::unique_ptr<PreparedGraph>> PrepareGraph(Graph graph, KernelDispatch& dispatch,
                                                    Arena& arena, BindAs bind) {
  const bool chained = bind == BindAs::kChained;
  if (Status status = VerifyGraph(graph); !status) return Fail(status.error());
  std::unique_ptr<PreparedGraph> prepared(new PreparedGraph);
  prepared->graph_ = std::move(graph);
  prepared->memory_ = PlanMemory(prepared->graph_, chained ? Reuse::kBehindNext : Reuse::kAtOnce);
  if (Status status = arena.Reserve(prepared->memory_.bytes); !status) {
    return Fail(status.error().code,
                Format("the activations of this pass need {}: {}; fewer rows in a pass need less",
                       HumanBytes(prepared->memory_.bytes), status.error().message));
  }
  BindMemory(prepared->graph_, prepared->memory_, arena.data());
  Result<BoundSteps> bound =
      chained ? dispatch.BindChained(prepared->graph_) : dispatch.BindSteps(prepared->graph_);
  if (!bound) return Fail(bound.error());
  prepared->steps_ = std::move(bound->steps);
  for (const auto& step : prepared->steps_) prepared->ready_.push_back(step->ready());
  prepared->fresh_at_ = Epoch::Changes();
  prepared->watched_.push_back({&arena.epoch(), arena.epoch().now()});
  for (const Epoch* epoch : bound->epochs) prepared->watched_.push_back({epoch, epoch->now()});
  return prepared;
}

Status PreparedGraph::Outcome() const {
  for (const std::unique_ptr<PreparedStep>& step : steps_) {
    if (Status right = step->Outcome(); !right)
      return AtNode(graph_.node(step->node), right.error());
  }
  return {};
}

bool PreparedGraph::stale() const {
  for (const Watched& watched : watched_) {
    if (watched.epoch->now() != watched.seen) return true;
  }
  return false;
}

Status PreparedGraph::Fresh() const {
  const std::uint64_t changes = Epoch::Changes();
  if (!stale()) {
    fresh_at_ = changes;
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument,
              "this graph was prepared for memory or choices that have changed: prepare it again");
}

Status PreparedGraph::Capture(Device& device, Stream stream) {
  if (Status fresh = Fresh(); !fresh) return fresh;
  if (captured()) return {};
  for (const std::unique_ptr<PreparedStep>& step : steps_) {
    if (step->only_submits()) continue;
    return AtNode(graph_.node(step->node),
                  Error{ErrorCode::kUnsupported, "needs the host each time and is not captured"});
  }
  Result<std::unique_ptr<DeviceGraph>> made =
      device.Capture(stream, [&] { return Submit(stream); });
  if (!made) return Fail(made.error());
  captured_ = std::move(*made);
  return {};
}

Status PreparedGraph::Run(Stream stream) const {
  if (Epoch::Changes() != fresh_at_) [[unlikely]] {
    if (Status fresh = Fresh(); !fresh) return fresh;
  }
  return captured_ != nullptr ? captured_->Launch(stream) : Submit(stream);
}

Status PreparedGraph::Submit(Stream stream) const {
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    Status status = ready_[i] != nullptr ? ready_[i]->Launch(stream) : steps_[i]->Run(stream);
    if (!status) [[unlikely]]
      return AtNode(graph_.node(steps_[i]->node), status.error());
  }
  return {};
}

}  // namespace tilewright
