#include <cstring>
#include <utility>

#include "core/text.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

class CpuStream final : public DeviceStream {
 public:
  explicit CpuStream(Stream stream) : stream_(stream) {}
  Stream stream() const override { return stream_; }

 private:
  Stream stream_;
};

/// Work is complete as soon as it is submitted, so an event has always happened.
class CpuEvent final : public DeviceEvent {};

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceSpec spec, const CpuDeviceOptions& options)
      : spec_(std::move(spec)),
        executor_(options.executor),
        allocator_(options.allocator != nullptr ? options.allocator : &DefaultAllocator()) {}

  const DeviceSpec& spec() const override { return spec_; }
  bool host_accessible() const override { return true; }

  Result<DeviceMemory> Allocate(std::size_t bytes) override {
    if (bytes == 0) return DeviceMemory();
    void* data = allocator_->Allocate(bytes, 64);
    if (data == nullptr) {
      return Fail(ErrorCode::kOutOfMemory, Format("no memory for {}", HumanBytes(bytes)));
    }
    return DeviceMemory(*this, data, bytes, false);
  }
  Result<DeviceMemory> AllocateStaging(std::size_t bytes) override { return Allocate(bytes); }

  Status Upload(void* to, const void* from, std::size_t bytes, Stream) override {
    return Move(to, from, bytes);
  }
  Status Download(void* to, const void* from, std::size_t bytes, Stream) override {
    return Move(to, from, bytes);
  }
  Status Copy(void* to, const void* from, std::size_t bytes, Stream) override {
    return Move(to, from, bytes);
  }
  Status Fill(void* to, std::uint8_t value, std::size_t bytes, Stream) override {
    if (bytes > 0) std::memset(to, value, bytes);
    return {};
  }

  Stream default_stream() override { return Stream{executor_}; }
  Result<std::unique_ptr<DeviceStream>> CreateStream() override {
    return std::unique_ptr<DeviceStream>(std::make_unique<CpuStream>(default_stream()));
  }
  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    return std::unique_ptr<DeviceEvent>(std::make_unique<CpuEvent>());
  }
  Status Record(DeviceEvent&, Stream) override { return {}; }
  Status Wait(Stream, const DeviceEvent&) override { return {}; }
  Status WaitOnHost(const DeviceEvent&) override { return {}; }
  Status Synchronize(Stream) override { return {}; }

 private:
  static Status Move(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
    return {};
  }
  void Free(void* data, std::size_t bytes) override { allocator_->Free(data, bytes); }
  void FreeStaging(void* data, std::size_t bytes) override { Free(data, bytes); }

  DeviceSpec spec_;
  Executor* executor_;
  Allocator* allocator_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(DeviceSpec spec, const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(std::move(spec), options);
}

Device& HostDevice() {
  // An invalid TILEWRIGHT_ISA is reported when a context is created; here it is ignored.
  static const std::unique_ptr<Device> device =
      MakeCpuDevice(DetectCpu().value_or(DetectCpuCappedAt(Isa::kAmx)));
  return *device;
}

}  // namespace tilewright
