// Stands in for driver.cc where no cuda.h was found.
#include "tilewright/cuda_device.h"
#include "tilewright/gpu_state.h"

namespace tilewright::cuda {
namespace {

Error Absent() {
  return {ErrorCode::kUnavailable,
          "this build has no CUDA device: no cuda.h was found when it was configured (install a "
          "CUDA toolkit or the Python package nvidia-cuda-runtime, and configure again)"};
}

}  // namespace

bool BuiltWithDriver() { return false; }
Result<int> CudaDeviceCount(const std::string& /*library*/) { return Fail(Absent()); }
Result<DeviceSpec> CudaDeviceSpec(int /*ordinal*/, const std::string& /*library*/) {
  return Fail(Absent());
}
Result<std::unique_ptr<Device>> MakeCudaDevice(int, const CudaDeviceOptions&) {
  return Fail(Absent());
}

Result<GpuState> ReadGpuState(int, const std::string&) { return Fail(Absent()); }

}  // namespace tilewright::cuda
