#pragma once

#include <functional>
#include <string>

#include "gpu/harness.h"
#include "tilewright/gemm.h"

namespace tilewright::gpu_check {

/// NVIDIA's cuBLASLt, loaded by dlopen, as the rate that our products are compared with in the same
/// process on the same data: what queues one product `args(set)`, without C, by that algorithm
/// which, of those that its heuristic names (16 at most, 64 MiB of workspace), is fastest here.
/// Empty where the library is missing, or
/// cannot compute the product (CheckCublasLt). `gpu` and the memory must
/// outlive it.
std::function<void(int)> FastestCublasLt(const Gpu& gpu, int sets,
                                         const std::function<GemmArgs(int)>& args);

/// "13.1.0", or "" where the library is missing.
std::string CublasLtVersion();

}  // namespace tilewright::gpu_check
