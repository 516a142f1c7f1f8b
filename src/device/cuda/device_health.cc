#include "device/cuda/device_health.h"

#include <utility>

#include "core/text.h"

namespace tilewright::cuda {

bool EndsContext(CUresult result) {
  // By number what the oldest cuda.h that builds this does not name.
  constexpr int kContained = 226, kTensorMemoryLeak = 721;
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case kContained:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case kTensorMemoryLeak:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

DeviceHealth::DeviceHealth(const CudaDriver& driver, std::string device)
    : driver_(driver), device_(std::move(device)) {}
DeviceHealth::~DeviceHealth() { delete loss_.load(); }

Status DeviceHealth::Lost(std::string_view call) const {
  return Fail(ErrorCode::kUnavailable,
              Format("{}: {} is lost since {}", call, device_, *loss_.load()));
}

Status DeviceHealth::Failed(CUresult result, std::string_view call) {
  const Status failed = driver_.Check(result, call);
  const Error& error = failed.error();
  if (!EndsContext(result)) return Fail(error.code, Format("{}: {}", device_, error.message));
  auto loss = std::make_unique<const std::string>(error.message);
  const std::string* standing = nullptr;
  // Of threads that meet it together, one reports it.
  if (!loss_.compare_exchange_strong(standing, loss.get())) return Lost(call);
  return Fail(error.code,
              Format("{} is lost, nothing runs on it any more: {}", device_, *loss.release()));
}

}  // namespace tilewright::cuda
