#pragma once

#include <vector>

#include "tilewright/device_spec.h"

namespace tilewright::cuda {

/// GPUs of every generation that kernels are made for, as the driver describes them, with the rates
/// of their clocks: of each a large and a small board. For deciding what may run on machines that
/// are not here.
std::vector<DeviceSpec> TypicalBoards();

}  // namespace tilewright::cuda
