#pragma once

#include "tilewright/device.h"

namespace tilewright {

/// A device that may be lost: nothing runs on it any more. Any thread.
class TellsLoss {
 public:
  /// Asks the driver nothing.
  virtual bool Lost() const = 0;

 protected:
  ~TellsLoss() = default;
};

/// False for a device that cannot be lost.
inline bool IsLost(const Device& device) {
  const auto* const tells = dynamic_cast<const TellsLoss*>(&device);
  return tells != nullptr && tells->Lost();
}

}  // namespace tilewright
