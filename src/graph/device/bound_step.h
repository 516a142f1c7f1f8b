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

 private:
  Plan<Op> plan_;
  typename Op::Args args_;
  Workspace& workspace_;  // the dispatch's; moves make the graph stale
};

/// What most operations need before their arguments are complete: nothing.
template <class Op>
struct NothingToPrepare {
  Status Prepare(typename Op::Args&, Device&, Stream, std::int64_t) { return {}; }
};

/// Op::Prepared where the operation declares one (rope: tables of rotations).
template <class Op>
struct PreparedType {
  using type = NothingToPrepare<Op>;
};
template <class Op>
requires requires { typename Op::Prepared; }
struct PreparedType<Op> {
  using type = typename Op::Prepared;
};
template <class Op>
using PreparedOf = typename PreparedType<Op>::type;

}  // namespace tilewright
