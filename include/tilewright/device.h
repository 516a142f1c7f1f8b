#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "tilewright/device_spec.h"
#include "tilewright/executor.h"
#include "tilewright/result.h"

namespace tilewright {

/// Ordered execution on a device: the executor that host code of the call may use, and on devices
/// other than the CPU also the device's own stream. A value; what it refers to must outlive every
/// call made with it.
struct Stream {
  Executor* executor = nullptr;  ///< nullptr means SerialExecutor()
  void* native = nullptr;        ///< CUstream, or a stream of the fake device

  Executor& exec() const { return executor != nullptr ? *executor : SerialExecutor(); }
};

class Device;

/// Owns device memory, or pinned host memory. Movable; frees the memory when destroyed, after the
/// work that was submitted to the device before, which may use it. The device must outlive it.
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

/// A stream of a device. Its destructor waits for the work that was submitted to it.
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

/// A compiled module loaded into a device. Its functions live as long as the module.
class DeviceModule {
 public:
  virtual ~DeviceModule() = default;
  /// The handle of the function with symbol `name`. kNotFound names it.
  virtual Result<void*> Function(const char* name) const = 0;
};

/// Work that was captured once and can be submitted again as a whole. What the work uses (memory,
/// modules) must outlive it.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Submits the work to `stream`, with the addresses it was captured with and whatever their memory
  /// holds then. Waits for nothing; allocates nothing.
  virtual Status Launch(Stream stream) = 0;
};

/// A device that runs kernels: it owns memory, streams, events and loaded modules. Nothing above
/// this interface assumes that the host can touch device memory, or that work is done when a call
/// returns: Upload, Download, Copy, Fill and every kernel launch are ordered within their stream
/// and complete by the next Synchronize or WaitOnHost at the latest.
///
/// Members may be called from many threads; only one thread at a time may submit work to a stream.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// The description that kernels are chosen by.
  virtual const DeviceSpec& spec() const = 0;
  /// True where device addresses are host addresses and work is done when a call returns, so copies
  /// may be omitted.
  virtual bool host_accessible() const = 0;

  /// At least `bytes` of device memory, 64-byte aligned, contents undefined; an empty object for
  /// 0 bytes. The message of kOutOfMemory gives the requested size.
  virtual Result<DeviceMemory> Allocate(std::size_t bytes) = 0;
  /// Host memory that the device copies from and to directly ("pinned"), and that its kernels may
  /// read and write, at the same addresses. What a kernel wrote is there once an event behind it is.
  virtual Result<DeviceMemory> AllocateStaging(std::size_t bytes) = 0;

  /// Copies host memory into device memory. `from` must stay unchanged until the copy has run.
  virtual Status Upload(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Copies device memory into host memory; `to` is valid once the copy has run.
  virtual Status Download(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Copies within the device. The ranges must not overlap.
  virtual Status Copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Sets every byte to `value`.
  virtual Status Fill(void* to, std::uint8_t value, std::size_t bytes, Stream stream) = 0;

  /// The stream used where the caller has none of its own; ordered like any other.
  virtual Stream default_stream() = 0;
  virtual Result<std::unique_ptr<DeviceStream>> CreateStream() = 0;
  virtual Result<std::unique_ptr<DeviceEvent>> CreateEvent() = 0;
  /// `event` completes when the work submitted to `stream` so far is done.
  virtual Status Record(DeviceEvent& event, Stream stream) = 0;
  /// Work submitted to `stream` from now on waits for the last Record of `event` before this call;
  /// the event may then be recorded again or destroyed. An event that was never recorded delays
  /// nothing.
  virtual Status Wait(Stream stream, const DeviceEvent& event) = 0;
  virtual Status WaitOnHost(const DeviceEvent& event) = 0;
  /// Returns when the work submitted to `stream` is done; the first error of that work, if any.
  virtual Status Synchronize(Stream stream) = 0;

  /// An event that also notes when it completes, on the device's clock. The default returns
  /// kUnsupported.
  virtual Result<std::unique_ptr<DeviceEvent>> CreateTimer();
  /// Microseconds from the completion of one timer to that of another; both have completed.
  virtual Result<double> MicrosBetween(const DeviceEvent& begin, const DeviceEvent& end);

  /// Whether Capture is supported.
  virtual bool can_capture() const { return false; }
  /// Captures the work that `submit` submits to `stream`: none of it runs. `submit` must submit
  /// kernels, copies and fills to that stream and do nothing else with the device; its error is
  /// returned. The default returns kUnsupported.
  virtual Result<std::unique_ptr<DeviceGraph>> Capture(Stream stream,
                                                       const std::function<Status()>& submit);

  /// Loads a compiled image (a cubin). The default returns kUnsupported.
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
/// The CPU as a device: its memory is host memory, and every call is complete when it returns.
/// `spec`, usually that of DetectCpu, is what kernels are chosen by.
std::unique_ptr<Device> MakeCpuDevice(DeviceSpec spec, const CpuDeviceOptions& options = {});

/// The CPU of this machine, with the calling thread as executor. Detected once, at the first call.
Device& HostDevice();

}  // namespace tilewright
