#include "device/cuda/bus_id.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvml.h"

namespace tilewright::cuda {

Result<GpuState> ReadGpuState(int ordinal, const std::string& library) {
  const Result<const CudaDriver*> driver = CudaDriver::Load(library);
  if (!driver) return Fail(driver.error());
  const Result<std::string> bus_id = BusIdOf(**driver, ordinal);
  if (!bus_id) return Fail(bus_id.error());
  const Result<std::unique_ptr<Nvml>> nvml = Nvml::Open(*bus_id);
  if (!nvml) return Fail(nvml.error());
  return (*nvml)->Read();
}

}  // namespace tilewright::cuda
