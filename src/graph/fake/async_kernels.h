#pragma once

#include <memory>

#include "device/fake/fake_device.h"
#include "tilewright/kernels.h"

namespace tilewright {

/// The kernels of `inner`, each of which computes on `device` what it computes on the CPU, when the
/// device's stream reaches it; sequences are made of these kernels, so each of their steps waits
/// for itself. `inner` and `device` must outlive them.
std::unique_ptr<Kernels> MakeAsyncKernels(const Kernels& inner, FakeDevice& device);

}  // namespace tilewright
