#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/test_util.h"
#include "device/cuda/launch.h"
#include "tilewright/device_spec.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/operation.h"

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

/// A workspace in guarded memory, its counters zero.
class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(const WorkspaceSize& size)
      : partials_(size.partials), barriers_(size.barriers) {
    std::fill_n(Counters(), barriers_.size(), std::byte{0});
  }
  Workspace workspace() {
    Workspace all;
    all.partials = partials_.data();
    all.partials_size = partials_.size();
    all.barriers = barriers_.data();
    all.barriers_size = barriers_.size();
    return all;
  }
  /// Nothing was written beside it, and the next launch finds its counters zero.
  void ExpectIntact() {
    EXPECT_EQ(partials_.Damage() + barriers_.Damage(), "");
    EXPECT_TRUE(std::all_of(Counters(), Counters() + barriers_.size(), [](std::byte byte) {
      return byte == std::byte{0};
    })) << "the next launch would count from there";
  }

 private:
  std::byte* Counters() { return static_cast<std::byte*>(barriers_.data()); }
  GuardedBytes partials_, barriers_;
};

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
