#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/operation.h"
#include "tilewright/tensor.h"

/// For the tests of operations.

namespace tilewright::test {

/// The kernels of an operation, and those of them that this processor can run.
template <class Op>
class OpTest : public testing::Test {
 protected:
  OpTest() { AddKernels(registry_); }

  std::vector<typename Op::KernelType*> Kernels() const {
    std::vector<typename Op::KernelType*> kernels;
    for (auto* kernel : registry_.kernels()) {
      if (!kernel->CheckDevice(device_)) kernels.push_back(kernel);
    }
    return kernels;
  }

  OpRegistry<Op> registry_;
  DeviceSpec device_ = DetectCpuCappedAt(Isa::kAmx);
};

/// [cols, rows], rows `ld` elements apart.
inline TensorView Rows(void* data, DataType type, std::int64_t cols, std::int64_t rows,
                       std::int64_t ld) {
  return TensorView{data, {cols, rows, 1, 1}, {1, ld, ld * rows, ld * rows}, type};
}

}  // namespace tilewright::test
