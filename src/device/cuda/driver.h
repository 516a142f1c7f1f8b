#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "device/cuda/driver_api.h"
#include "device/cuda/launch.h"
#include "tilewright/cuda_device.h"
#include "tilewright/result.h"

namespace tilewright::cuda {

/// libcuda, loaded by dlopen and initialised. Lives until the process ends; any thread.
class CudaDriver {
 public:
  /// Loads and initialises libcuda, once a process for one `path`. "" looks for libcuda.so.1 on the
  /// loader's path and then where driver installations and containers put it; a path is used as it
  /// is. The toolkit's stub library is refused by its folder before it is opened, and by cuInit's
  /// answer if it hides elsewhere. kUnavailable: no library (with every place looked at), a stub, a
  /// driver older than 12.0 (without cuLaunchKernelEx or tensor maps), no GPU, with CUDA's words.
  static Result<const CudaDriver*> Load(const std::string& path = "");

  /// A driver of these functions, which are not initialised: for tests without a GPU.
  explicit CudaDriver(const DriverApi& api, int version = 13020) : api_(api), version_(version) {}

  const DriverApi& api() const { return api_; }
  int version() const { return version_; }  ///< cuDriverGetVersion: 13000
  std::string VersionText() const;          ///< "13.0"
  const std::string& path() const { return path_; }

  Result<int> DeviceCount() const;
  /// As CudaDeviceSpec of cuda_device.h, by this library.
  Result<DeviceSpec> Describe(int ordinal) const;

  /// Success, or an error "`call`: CUDA_ERROR_NAME (number): words", with kOutOfMemory,
  /// kUnavailable (no device), kUnsupported (code for another GPU), kInvalidArgument or kInternal.
  Status Check(CUresult result, std::string_view call) const;

 private:
  CudaDriver() = default;
  static Result<const CudaDriver*> LoadFile(const std::string& path);

  DriverApi api_;
  int version_ = 0;
  std::string path_;
};

/// Owns a driver object. Movable; the destructor releases it and ignores the result, since after a
/// fault in a kernel every call fails.
template <class Handle, class Release>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  UniqueHandle(const CudaDriver* driver, Handle handle) : driver_(driver), handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept { Swap(other); }
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    UniqueHandle moved(std::move(other));
    Swap(moved);
    return *this;
  }
  ~UniqueHandle() {
    if (driver_ != nullptr) Release()(driver_->api(), handle_);
  }

  Handle get() const { return handle_; }
  const CudaDriver& driver() const { return *driver_; }
  explicit operator bool() const { return driver_ != nullptr; }

 private:
  void Swap(UniqueHandle& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
  }

  const CudaDriver* driver_ = nullptr;
  Handle handle_{};
};

struct ReleaseContext {
  void operator()(const DriverApi& api, CUdevice device) { api.cuDevicePrimaryCtxRelease(device); }
};
struct ReleaseStream {
  void operator()(const DriverApi& api, CUstream stream) { api.cuStreamDestroy(stream); }
};
struct ReleaseEvent {
  void operator()(const DriverApi& api, CUevent event) { api.cuEventDestroy(event); }
};
struct ReleaseMemory {
  void operator()(const DriverApi& api, CUdeviceptr memory) { api.cuMemFree(memory); }
};
struct ReleaseModule {
  void operator()(const DriverApi& api, CUmodule module) { api.cuModuleUnload(module); }
};
struct ReleaseCaptured {
  void operator()(const DriverApi& api, CUgraph graph) { api.cuGraphDestroy(graph); }
};
struct ReleaseGraph {
  void operator()(const DriverApi& api, CUgraphExec graph) { api.cuGraphExecDestroy(graph); }
};

/// The primary context of a GPU, which libraries in the process share, retained and made current on
/// the calling thread. Must outlive every object made in it. Another thread calls MakeCurrent.
class Context {
 public:
  static Result<Context> Retain(const CudaDriver& driver, int ordinal);

  const CudaDriver& driver() const { return primary_.driver(); }
  CUdevice device() const { return primary_.get(); }
  CUcontext get() const { return context_; }
  Status MakeCurrent() const;
  /// Waits for everything; where a kernel's fault shows.
  Status Synchronize() const;
  Result<int> Attribute(CUdevice_attribute attribute) const;
  struct Memory {
    std::size_t free = 0, total = 0;
  };
  Result<Memory> GetMemory() const;

 private:
  UniqueHandle<CUdevice, ReleaseContext> primary_;
  CUcontext context_ = nullptr;
};

/// An ordered queue of work that does not wait for the legacy default stream.
class StreamHandle {
 public:
  static Result<StreamHandle> Create(const Context& context);

  CUstream get() const { return stream_.get(); }
  Status Synchronize() const;

 private:
  UniqueHandle<CUstream, ReleaseStream> stream_;
};

/// A point in a stream, with a time stamp.
class Event {
 public:
  static Result<Event> Create(const Context& context);

  Status Record(const StreamHandle& stream) const;
  Status Synchronize() const;
  /// From this event to `end`, in microseconds; both recorded and reached.
  Result<double> MicrosecondsTo(const Event& end) const;

 private:
  UniqueHandle<CUevent, ReleaseEvent> event_;
};

/// Memory of the GPU, aligned to 256 bytes. `bytes` may be 0: then there is no memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> Allocate(const Context& context, std::size_t bytes);

  CUdeviceptr address() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  /// Copies and waits for the copy. `offset + data.size()` must be within the buffer.
  Status Upload(std::span<const std::byte> data, std::size_t offset, const StreamHandle& s) const;
  Status Download(std::span<std::byte> data, std::size_t offset, const StreamHandle& s) const;
  /// Every byte of the buffer, asynchronously.
  Status Fill(std::uint8_t value, const StreamHandle& stream) const;

 private:
  UniqueHandle<CUdeviceptr, ReleaseMemory> memory_;
  std::size_t bytes_ = 0;
};

/// Grid, block, cluster and shared memory of a launch as the driver takes them.
class LaunchConfig {
 public:
  explicit LaunchConfig(const CudaLaunch& launch);
  /// Queues a launch with parameters whose tensor maps are encoded, and which the driver copies
  /// before this returns. `programmatic`: with the attribute programmatic-stream-serialization.
  CUresult Queue(const DriverApi& api, CUfunction function, const KernelParams& params,
                 CUstream stream, bool programmatic) const {
    CUlaunchConfig config = config_;
    config.hStream = stream;
    config.attrs = const_cast<CUlaunchAttribute*>(attributes_);  // the driver reads them only
    if (programmatic) ++config.numAttrs;
    void* arguments[] = {const_cast<std::byte*>(params.data())};
    return api.cuLaunchKernelEx(&config, function, arguments, nullptr);
  }

 private:
  CUlaunchConfig config_{};
  // The cluster's and a cooperative launch's, if there are such, and then that of a programmatic
  // launch. Not cleared: a launch that is made and queued at once would spend a tenth of its time on
  // that.
  CUlaunchAttribute attributes_[3];
};

/// A kernel of a Module; valid while that lives.
class Function {
 public:
  /// QueueLaunch, programmatic where the launch is: the caller sees to what is in front of it.
  /// Errors of the launch itself; a fault while it runs shows at the next synchronisation.
  Status Launch(const CudaLaunch& launch, const StreamHandle& stream) const;
  /// Lets launches ask for this much dynamic shared memory; needed beyond 48 KiB.
  Status AllowDynamicSmem(std::uint32_t bytes) const;
  Result<int> Attribute(CUfunction_attribute attribute) const;
  /// CTAs of this shape that one multiprocessor holds.
  Result<int> Occupancy(int threads, std::size_t dynamic_smem_bytes) const;

 private:
  friend class Module;
  const CudaDriver* driver_ = nullptr;
  CUfunction function_ = nullptr;
};

/// kInvalidArgument for what is no ELF image that ends within `cubin`: the driver is given no
/// length and reads as far as the header says.
Status CheckCubin(std::string_view cubin);

/// Machine code loaded into a context.
class Module {
 public:
  /// `cubin`: a whole ELF image; the bytes are not needed afterwards. kUnsupported where it is for
  /// another GPU.
  static Result<Module> Load(const Context& context, std::string_view cubin);
  Result<Function> Get(const std::string& symbol) const;

 private:
  UniqueHandle<CUmodule, ReleaseModule> module_;
};

/// What was queued on a stream while it was captured, to be queued again as one.
class Graph {
 public:
  /// Runs `queue` (which must only queue work on `stream`) under capture.
  template <class Queue>
  static Result<Graph> Capture(const Context& context, const StreamHandle& stream, Queue&& queue) {
    if (Status begun = Begin(context, stream); !begun) return Fail(begun.error());
    Status queued = queue();
    Result<Graph> graph = End(context, stream);
    if (!queued) return Fail(queued.error());
    return graph;
  }
  Status Launch(const StreamHandle& stream) const;

 private:
  static Status Begin(const Context& context, const StreamHandle& stream);
  static Result<Graph> End(const Context& context, const StreamHandle& stream);

  UniqueHandle<CUgraphExec, ReleaseGraph> graph_;
};

/// cuTensorMapEncodeTiled: the 128 bytes of a tensor map, with what drivers before CUDA 13.2 get
/// wrong of small tensors put right. kInvalidArgument with the desc where the driver refuses it.
Status EncodeTensorMap(const CudaDriver& driver, const TensorMapDesc& desc,
                       std::span<std::byte, kTensorMapBytes> out);

}  // namespace tilewright::cuda
