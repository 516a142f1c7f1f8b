#pragma once

#include <string>

#include "device/cuda/launch.h"
#include "tilewright/device_spec.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::test {

/// Values of the fewest blocks whose bytes are even, as those of every row must be.
constexpr int RowUnit(int block_values, int block_bytes) {
  return block_bytes % 2 == 0 ? block_values : 2 * block_values;
}
constexpr int RowUnit(const TypeInfo& type) {
  return RowUnit(type.block_elements, type.block_bytes);
}

/// A GPU with so many multiprocessors.
inline DeviceSpec DeviceOf(int sm_count) {
  DeviceSpec device;
  device.kind = DeviceKind::kCuda;
  device.sm_count = sm_count;
  return device;
}

/// One row and column of 256 products by a kernel of weights in blocks, which every launcher takes.
struct LaunchCase {
  explicit LaunchCase(const KernelSpec& its_spec) : spec(its_spec) {
    args.a = args.b = memory;
    args.d = memory;
    args.a_layout = {.type = spec.type_a, .rows = 1, .cols = 256, .ld = 256};
    args.b_layout = {
        .type = spec.type_b, .order = Order::kColMajor, .rows = 256, .cols = 1, .ld = 256};
    args.d_layout = {.type = spec.type_d, .rows = 1, .cols = 1, .ld = 1};
  }
  alignas(16) static inline unsigned char memory[64];
  KernelSpec spec;
  GemmArgs args;
};

/// What `launch` says of a case after a change of it; "": it takes it.
template <class Case, class Change, class Launch>
std::string RefusalAfter(Case changed, Change change, Launch launch) {
  change(changed);
  const cuda::LaunchResult made = launch(changed);
  return made ? "" : made.error().ToString();
}

}  // namespace tilewright::test
