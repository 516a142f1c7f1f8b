#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/stage_templates.h"
#include "tilewright/prepared_graph.h"
#include "tilewright/stages.h"

namespace tilewright {

/// A node bound to a plan: arguments resolved, checked once when it was made.
template <class Op>
class BoundStep final : public PreparedStep {
 public:
  BoundStep(NodeId id, const Plan<Op>& plan, const typename Op::Args& args, Workspace& workspace)
      : plan_(plan), args_(args), workspace_(workspace) {
    node = id;
    kernel = std::string(plan.kernel().name());
    spec = SpecText(plan.spec());
    why = plan.why();
  }
  /// Prepares what can be for arguments that stay the same. Once all plans of the graph have
  /// reserved their workspace, which does not move any more.
  Status Ready() {
    Result<std::unique_ptr<ReadyLaunch>> ready = Stages<Op>::Ready(plan_, args_, workspace_);
    if (!ready) return Fail(ready.error());
    ready_ = std::move(*ready);
    return {};
  }
  Status Run(Stream stream) const override {
    if (ready_ != nullptr) return ready_->Launch(stream);
    return plan_.Launch(args_, workspace_, stream);
  }
  bool only_submits() const override { return true; }
  const ReadyLaunch* ready() const override { return ready_.get(); }

  const typename Op::Args& args() const { return args_; }
  Provenance provenance() const { return plan_.provenance(); }

 private:
  Plan<Op> plan_;
  typename Op::Args args_;
  std::unique_ptr<const ReadyLaunch> ready_;
  Workspace& workspace_;  // the dispatch's; moves make the graph stale
};

}  // namespace tilewright
