#pragma once

#include <memory>

#include "tilewright/operation.h"

namespace tilewright {

/// A launch with its arguments: nothing is left but to queue it. Refers to the operands, the
/// workspace and the device. Any thread; the work of one stream is given by one thread at a time.
class ReadyLaunch {
 public:
  ReadyLaunch() = default;
  ReadyLaunch(const ReadyLaunch&) = delete;
  ReadyLaunch& operator=(const ReadyLaunch&) = delete;
  virtual ~ReadyLaunch() = default;
  virtual Status Launch(Stream stream) const = 0;
};

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

}  // namespace tilewright
