#include "device/cuda/bus_id.h"

#include <utility>

#include "core/text.h"

namespace tilewright::cuda {

Result<std::string> BusIdOf(const CudaDriver& driver, int ordinal) {
  CUdevice device = 0;
  int domain = 0, bus = 0, place = 0;
  const DriverApi& api = driver.api();
  CUresult result = api.cuDeviceGet(&device, ordinal);
  for (const auto& [value, attribute] : {std::pair{&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
                                         {&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
                                         {&place, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID}}) {
    if (result == CUDA_SUCCESS) result = api.cuDeviceGetAttribute(value, attribute, device);
  }
  if (Status known = driver.Check(result, "cuDeviceGetAttribute"); !known)
    return Fail(known.error());
  return Format("{:08x}:{:02x}:{:02x}.0", domain, bus, place);
}

}  // namespace tilewright::cuda
