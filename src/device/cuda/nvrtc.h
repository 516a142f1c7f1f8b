#pragma once

#include <memory>

#include "device/cuda/nvrtc_library.h"
#include "tilewright/compiler.h"

namespace tilewright::cuda {

/// LoadNvrtc with a machine of the caller's own.
Result<std::shared_ptr<const KernelCompiler>> LoadNvrtcFrom(const NvrtcSearch& search,
                                                            const NvrtcSurroundings& surroundings);

}  // namespace tilewright::cuda
