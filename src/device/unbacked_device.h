#pragma once

#include <memory>

#include "tilewright/device.h"

namespace tilewright {

/// A device of addresses only, with the description of any other: for deciding what would run
/// there. Its memory may not be touched (that is a fault of the process), copies and fills are
/// accepted and not done, and it loads and captures nothing. Any thread.
std::unique_ptr<Device> MakeUnbackedDevice(DeviceSpec spec);

}  // namespace tilewright
