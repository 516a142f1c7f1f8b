#pragma once

#include "tilewright/device.h"
#include "tilewright/result.h"

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

}  // namespace tilewright
