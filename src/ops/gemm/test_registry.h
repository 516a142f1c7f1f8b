#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/gemm/cpu/amx/emulated_kernels.h"
#include "ops/gemm/register.h"
#include "tilewright/device.h"
#include "tilewright/gemm.h"

/// The registry under test, the device, thread pools. Tests only.

namespace tilewright::test {

inline const DeviceSpec& Device() {
  static const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  return device;
}

inline Registry& AllKernels() {
  static Registry& registry = *[] {
    auto* r = new Registry;
    AddGemm(*r);
    return r;
  }();
  return registry;
}

/// Kernels that only tests have: those of AMX with emulated tiles.
inline Registry& EmulatedKernels() {
  static Registry& registry = *[] {
    auto* r = new Registry;
    AddEmulatedAmx(*r);
    return r;
  }();
  return registry;
}

/// Those that take one matrix. Products in groups of rows are the same arithmetic (grouped_test.cc).
inline std::vector<Kernel*> DenseKernels() {
  std::vector<Kernel*> dense;
  for (Kernel* kernel : AllKernels().kernels()) {
    if ((kernel->desc().striding_b & Bit(Striding::kFlat)) != 0) dense.push_back(kernel);
  }
  return dense;
}

inline std::vector<std::string> NamesOf(const Registry& registry) {
  std::vector<std::string> names;
  for (const Kernel* kernel : registry.kernels()) names.emplace_back(kernel->name());
  return names;
}

inline Executor& Pool(int threads) {
  static std::map<int, std::unique_ptr<Executor>> pools;
  std::unique_ptr<Executor>& pool = pools[threads];
  if (!pool) pool = MakeThreadPool(threads);
  return *pool;
}

template <class E>
std::vector<E> Values(std::uint32_t mask) {
  std::vector<E> values;
  for (unsigned i = 0; i < 32; ++i) {
    if ((mask >> i & 1u) != 0) values.push_back(static_cast<E>(i));
  }
  return values;
}
template <class E>
E First(std::uint32_t mask) {
  return Values<E>(mask).front();
}

}  // namespace tilewright::test
