#include "tilewright/device.h"

namespace tilewright {

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(staging_, other.staging_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  if (staging_) {
    device_->FreeStaging(data_, size_);
  } else {
    device_->Free(data_, size_);
  }
}

Result<std::unique_ptr<DeviceEvent>> Device::CreateTimer() {
  return Fail(ErrorCode::kUnsupported, "this device has no timers: " + spec().ClassId());
}
Result<double> Device::MicrosBetween(const DeviceEvent&, const DeviceEvent&) {
  return Fail(ErrorCode::kUnsupported, "this device has no timers: " + spec().ClassId());
}

Result<std::unique_ptr<DeviceGraph>> Device::Capture(Stream, const std::function<Status()>&) {
  return Fail(ErrorCode::kUnsupported, "this device cannot capture work: " + spec().ClassId());
}

Result<std::unique_ptr<DeviceModule>> Device::LoadModule(std::span<const std::byte>) {
  return Fail(ErrorCode::kUnsupported, "this device cannot load modules: " + spec().ClassId());
}

}  // namespace tilewright
