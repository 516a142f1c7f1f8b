#pragma once

#include <cstdint>
#include <string>

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
  Status Run(Stream stream) const override { return plan_.Launch(args_, workspace_, stream); }
  bool only_submits() const override { return true; }

 private:
  Plan<Op> plan_;
  typename Op::Args args_;
  Workspace& workspace_;  // the dispatch's; moves make the graph stale
};

}  // namespace tilewright
