#pragma once

#include <functional>
#include <string>

#include "gpu/product.h"

namespace tilewright::gpu_check {

/// NVIDIA's cuBLASLt, loaded by dlopen, as the rate that our products are compared with in the same
/// process on the same data: what queues one product of `view(set)` by that algorithm which, of
/// those that its heuristic names (16 at most, 64 MiB of workspace), is fastest here. Empty where
/// the library is missing, or does not have these types. `gpu` and the memory must outlive it.
std::function<void(int)> FastestCublasLt(const Gpu& gpu, const ProductTypes& types, int sets,
                                         const std::function<ProductView(int)>& view);

/// "13.1.0", or "" where the library is missing.
std::string CublasLtVersion();

}  // namespace tilewright::gpu_check
