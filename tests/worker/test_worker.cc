// A worker with kernels that misbehave and, where the tests say so, over a libcuda that has no GPU.

#include <unistd.h>

#include <cstdlib>

#include "gpu_faults.h"
#include "test_norms.h"
#ifdef TILEWRIGHT_FAKE_CUDA
#include "device/elf_compiler.h"
#include "device/host_kernels.h"
#endif

namespace tilewright {
namespace {

Status AddTo(Kernels& kernels, Device& device) {
  if (device.spec().kind == DeviceKind::kCpu) return test::AddTestNorms(kernels.of<norm::Op>());
  if (std::getenv("TILEWRIGHT_TEST_FAKE_GPU") == nullptr)
    return test::AddGpuFaults(kernels.of<norm::Op>());
#ifdef TILEWRIGHT_FAKE_CUDA
  // The work of the kernels in bf16; those whose symbol has this in it fault.
  const char* fault = std::getenv("TILEWRIGHT_TEST_FAULT");
  const cuda::HostKernels host{DataType::kBF16, DataType::kBF16, DataType::kBF16};
  cuda::LoadFakeCuda(TILEWRIGHT_FAKE_CUDA).SetKernels([=](const cuda::FakeCuda::Launch& launch) {
    constexpr int kLaunchFailed = 719;
    if (fault != nullptr && launch.symbol.find(fault) != std::string::npos) return kLaunchFailed;
    return host(launch);
  });
#endif
  return {};
}

}  // namespace
}  // namespace tilewright

int main() {
  tilewright::MeasureServerOptions options;
  options.add_kernels = tilewright::AddTo;
#ifdef TILEWRIGHT_FAKE_CUDA
  if (std::getenv("TILEWRIGHT_TEST_FAKE_GPU") != nullptr)
    options.context.artifacts.compiler = std::make_shared<tilewright::cuda::ElfCompiler>();
#endif
  _exit(tilewright::ServeMeasurements(options));
}
