#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tilewright/compiler.h"

/// Kernels for the tests of the compiler; each has the symbol "k".

namespace tilewright::test {

struct Kernel {
  std::string_view name, source;
};

inline constexpr Kernel kTrivial{"trivial.cu", R"(
extern "C" __global__ void k(float* p) { p[threadIdx.x] *= 2.0f; }
)"};

/// Internal linkage everywhere, which a compiler has to make unique names for.
inline constexpr Kernel kStatics{"statics.cu", R"(
namespace {
__device__ int counter[4];
template <int kN> __global__ void Inner(float* p) { p[threadIdx.x] *= kN; }
}
static __constant__ float table[8];
static __global__ void Other(float* p) { p[0] = table[1]; }
static __attribute__((used)) void Instantiate() { auto a = &Inner<3>; auto b = &Other; (void)a; (void)b; }
extern "C" __global__ void k(float* p, int n) {
  counter[n & 3] = n;
  p[threadIdx.x] += counter[(n + 1) & 3] + table[n & 7];
}
)"};

/// 128 bytes of shared memory and one barrier.
inline constexpr Kernel kShared{"shared.cu", R"(
extern "C" __global__ void k(float* p) {
  __shared__ float s[32];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[31 - threadIdx.x];
}
)"};

/// 64 live values a thread where 32 registers are allowed.
inline constexpr Kernel kSpilling{"spilling.cu", R"(
extern "C" __global__ void __launch_bounds__(1024, 2) k(float* o, int n) {
  float r[64];
  for (int i = 0; i < 64; i++) r[i] = o[i * n];
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 64; i++) r[i] = r[i] * r[(i + 1) & 63] + o[i + 64 * n];
  for (int i = 0; i < 64; i++) o[i] = r[i];
}
)"};

inline constexpr Kernel kKernels[] = {kTrivial, kStatics, kShared};

inline std::vector<std::string> Options(std::string_view arch, bool seed = true) {
  std::vector<std::string> options = {"--std=c++17", "--gpu-architecture=" + std::string(arch),
                                      "--ptxas-options=-v", "--no-cache", "-default-device"};
  if (seed) options.emplace_back("--frandom-seed=0123456789abcdef");
  return options;
}

inline CompileJob Job(const Kernel& kernel, const std::vector<std::string>& options) {
  return {.name = std::string(kernel.name),
          .source = kernel.source,
          .headers = {},
          .options = options,
          .symbol = "k"};
}

}  // namespace tilewright::test
