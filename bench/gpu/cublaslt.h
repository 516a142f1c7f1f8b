#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "gpu/product.h"

namespace tilewright::gpu_check {

/// NVIDIA's cuBLASLt, loaded by dlopen, as the rate that our products are compared with in the same
/// process on the same data: of the algorithms that its heuristic names (16 at most, 64 MiB of
/// workspace) the one that is fastest here, timed as TimeLaunches times ours. nullopt where the
/// library is missing, or does not have these types.
std::optional<TimeReport> TimeCublasLt(const Gpu& gpu, const ProductTypes& types, int sets,
                                       const std::function<ProductView(int)>& view);

/// "13.1.0", or "" where the library is missing.
std::string CublasLtVersion();

}  // namespace tilewright::gpu_check
