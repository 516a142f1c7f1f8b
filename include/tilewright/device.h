#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "tilewright/device_spec.h"
#include "tilewright/executor.h"
#include "tilewright/result.h"

namespace tilewright {

/// Ordered execution on a device. For the CPU: the executor that the kernels of this call may use.
/// For the others: also the device's own stream. A value; what it refers to must outlive every call
/// made with it.
struct Stream {
  Executor* executor = nullptr;  ///< nullptr means SerialExecutor()
  void* native = nullptr;        ///< CUstream, or a stream of the fake device

  Executor& exec() const { return executor != nullptr ? *executor : SerialExecutor(); }
};

class Device;

/// Memory of a device, or pinned memory of the host: owned, movable, freed with the object. The
/// device must outlive it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device& device, void* data, std::size_t size, bool staging)
      : device_(&device), data_(data), size_(size), staging_(staging) {}
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool staging_ = false;
};

/// A stream of a device. Destroying it waits for the work that was given to it.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual Stream stream() const = 0;
};

/// A point in a stream's work that other streams, and the host, can wait for.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

/// A compiled module that was loaded into a device. Its functions live as long as it does.
class DeviceModule {
 public:
  virtual ~DeviceModule() = default;
  /// The handle of a function by its symbol; kNotFound names it.
  virtual Result<void*> Function(const char* name) const = 0;
};

/// A device that runs kernels: it owns memory, streams, events and loaded modules. Nothing above
/// this interface assumes that the host can touch device memory, or that work is done when a call
/// returns: Upload, Fill, Download and every kernel launch are ordered within their stream and
/// complete by Synchronize or WaitOnHost at the latest.
///
/// Members may be called from many threads; the work of one stream is given by one thread at a
/// time.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// What decisions are made by.
  virtual const DeviceSpec& spec() const = 0;
  /// True where device addresses are host addresses and work is done when a call returns, so that
  /// copies may be left out.
  virtual bool host_accessible() const = 0;

  /// At least `bytes` of device memory, 64-byte aligned, contents undefined; an empty object for
  /// 0 bytes. kOutOfMemory tells how much was asked for.
  virtual Result<DeviceMemory> Allocate(std::size_t bytes) = 0;
  /// Host memory that the device can copy from and to without a detour ("pinned").
  virtual Result<DeviceMemory> AllocateStaging(std::size_t bytes) = 0;

  /// Copies host memory into device memory. `from` must stay as it is until the stream has come
  /// there.
  virtual Status Upload(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Copies device memory into host memory; `to` holds it once the stream has come there.
  virtual Status Download(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Copies within the device. The ranges do not overlap.
  virtual Status Copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Sets every byte to `value`.
  virtual Status Fill(void* to, std::uint8_t value, std::size_t bytes, Stream stream) = 0;

  /// The stream for work that needs no other; ordered like any.
  virtual Stream default_stream() = 0;
  virtual Result<std::unique_ptr<DeviceStream>> CreateStream() = 0;
  virtual Result<std::unique_ptr<DeviceEvent>> CreateEvent() = 0;
  /// `event` happens when the work given to `stream` so far is done.
  virtual Status Record(DeviceEvent& event, Stream stream) = 0;
  /// What is given to `stream` from now on waits for the last Record of `event`; an event that was
  /// never recorded holds nobody up.
  virtual Status Wait(Stream stream, const DeviceEvent& event) = 0;
  virtual Status WaitOnHost(const DeviceEvent& event) = 0;
  /// Returns when the work given to `stream` is done; its first error, if it had one.
  virtual Status Synchronize(Stream stream) = 0;

  /// Loads a compiled image (a cubin). The default is kUnsupported: the device runs no such code.
  virtual Result<std::unique_ptr<DeviceModule>> LoadModule(std::span<const std::byte> image);

 private:
  friend class DeviceMemory;
  virtual void Free(void* data, std::size_t bytes) = 0;
  virtual void FreeStaging(void* data, std::size_t bytes) = 0;
};

struct CpuDeviceOptions {
  Executor* executor = nullptr;    ///< of the default stream; nullptr: SerialExecutor()
  Allocator* allocator = nullptr;  ///< nullptr: DefaultAllocator()
};
/// The CPU as a device: memory is the host's, every call is done when it returns. `spec` is
/// DetectCpu's, or any other that the kernels shall be chosen by.
std::unique_ptr<Device> MakeCpuDevice(DeviceSpec spec, const CpuDeviceOptions& options = {});

/// The CPU this runs on, with the calling thread as executor. Detected once, at the first call.
Device& HostDevice();

}  // namespace tilewright
