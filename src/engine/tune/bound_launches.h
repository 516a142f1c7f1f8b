#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tilewright/operation.h"

namespace tilewright {

/// The launches of one problem as Bind would have made them, each bound once. For one thread.
template <class Op>
class BoundLaunches {
 public:
  using Bound = std::shared_ptr<const BoundLaunch<Op>>;  ///< null: the kernel has nothing to bind

  void Clear() { bound_.clear(); }  ///< another problem

  Result<Bound> Bind(const typename Op::Desc& desc, const typename Op::Spec& spec, Device& device) {
    for (const auto& [known, bound] : bound_) {
      if (known == spec) return bound;
    }
    Result<Bound> bound = spec.kernel->BindLaunch(desc, spec, device);
    if (bound) bound_.emplace_back(spec, *bound);
    return bound;
  }

  static Status Launch(const typename Op::Args& args, const typename Op::Spec& spec,
                       const BoundLaunch<Op>* bound, Workspace& workspace, Stream stream) {
    if (bound != nullptr) return bound->Launch(args, workspace, stream);
    return spec.kernel->Launch(args, spec, workspace, stream);
  }

 private:
  std::vector<std::pair<typename Op::Spec, Bound>> bound_;
};

}  // namespace tilewright
