#include "device/unbacked_device.h"

#include <sys/mman.h>

#include <utility>

#include "core/text.h"

namespace tilewright {
namespace {

class UnbackedDevice final : public Device {
 public:
  explicit UnbackedDevice(DeviceSpec spec) : spec_(std::move(spec)) {}

  const DeviceSpec& spec() const override { return spec_; }
  bool host_accessible() const override { return false; }

  Result<DeviceMemory> Allocate(std::size_t bytes) override {
    return Reserve(bytes, PROT_NONE, false);
  }
  Result<DeviceMemory> AllocateStaging(std::size_t bytes) override {
    return Reserve(bytes, PROT_READ | PROT_WRITE, true);
  }

  Status Upload(void*, const void*, std::size_t, Stream) override { return {}; }
  Status Download(void*, const void*, std::size_t, Stream) override { return {}; }
  Status Copy(void*, const void*, std::size_t, Stream) override { return {}; }
  Status Fill(void*, std::uint8_t, std::size_t, Stream) override { return {}; }

  Stream default_stream() override { return {}; }
  Result<std::unique_ptr<DeviceStream>> CreateStream() override { return NoWork(); }
  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    return std::make_unique<DeviceEvent>();
  }
  Status Record(DeviceEvent&, Stream) override { return {}; }
  Status Wait(Stream, const DeviceEvent&) override { return {}; }
  Status WaitOnHost(const DeviceEvent&) override { return {}; }
  Status Synchronize(Stream) override { return {}; }

 private:
  static tl::unexpected<Error> NoWork() {
    return Fail(ErrorCode::kUnsupported, "nothing runs on a device without memory");
  }

  Result<DeviceMemory> Reserve(std::size_t bytes, int access, bool staging) {
    if (bytes == 0) return DeviceMemory();
    void* const data =
        mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return Fail(ErrorCode::kOutOfMemory, Format("addresses for {} bytes: there are none", bytes));
    }
    return DeviceMemory(*this, data, bytes, staging);
  }
  void Free(void* data, std::size_t bytes) override { munmap(data, bytes); }
  void FreeStaging(void* data, std::size_t bytes) override { munmap(data, bytes); }

  DeviceSpec spec_;
};

}  // namespace

std::unique_ptr<Device> MakeUnbackedDevice(DeviceSpec spec) {
  return std::make_unique<UnbackedDevice>(std::move(spec));
}

}  // namespace tilewright
