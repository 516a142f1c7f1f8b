#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/ready_launch.h"
#include "tilewright/operation.h"

namespace tilewright {

/// What a BoundLaunch is too where more can be prepared once the arguments are known: grid,
/// parameters, tensor maps.
template <class Op>
class ArgumentBinder {
 public:
  /// For arguments that match the problem, and the workspace as it is now. May allocate.
  virtual Result<std::unique_ptr<ReadyLaunch>> Ready(const typename Op::Args& args,
                                                     Workspace& workspace) const = 0;

 protected:
  ~ArgumentBinder() = default;
};

/// Several launches in their order.
class ReadyLaunches final : public ReadyLaunch {
 public:
  explicit ReadyLaunches(std::vector<std::unique_ptr<ReadyLaunch>> launches)
      : launches_(std::move(launches)) {}
  Status Launch(Stream stream) const override {
    for (const std::unique_ptr<ReadyLaunch>& launch : launches_) {
      if (Status queued = launch->Launch(stream); !queued) return queued;
    }
    return {};
  }

 private:
  std::vector<std::unique_ptr<ReadyLaunch>> launches_;
};

}  // namespace tilewright
