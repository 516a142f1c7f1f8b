#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <mutex>
#include <utility>

#include "core/env.h"
#include "core/sha256.h"
#include "core/text.h"
#include "device/cuda/bus_id.h"
#include "device/cuda/context_scope.h"
#include "device/cuda/device_health.h"
#include "device/cuda/driver.h"
#include "device/cuda/gpu.h"
#include "device/cuda/gpu_launch.h"
#include "device/cuda/nvml.h"
#include "device/cuda/stream_tails.h"
#include "device/cuda/tensor_map_cache.h"
#include "device/loss.h"
#include "device/memory_space.h"
#include "device/slowdown.h"
#include "tilewright/cuda_device.h"

namespace tilewright::cuda {
namespace {

CUstream Native(Stream stream) { return static_cast<CUstream>(stream.native); }
CUdeviceptr Address(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

class GpuStream final : public DeviceStream {
 public:
  GpuStream(Gpu& gpu, StreamTails& tails, CUstream stream, Executor* executor)
      : gpu_(gpu), tails_(tails), stream_(stream), executor_(executor) {
    tails_.Add(stream_);
  }
  ~GpuStream() override {
    tails_.Remove(stream_);
    gpu_.Release("cuStreamSynchronize",
                 [&](const DriverApi& api) { return api.cuStreamSynchronize(stream_); });
    gpu_.Release("cuStreamDestroy",
                 [&](const DriverApi& api) { return api.cuStreamDestroy(stream_); });
  }
  Stream stream() const override { return Stream{executor_, stream_}; }

 private:
  Gpu& gpu_;
  StreamTails& tails_;
  CUstream stream_;
  Executor* executor_;
};

class GpuEvent final : public DeviceEvent {
 public:
  GpuEvent(Gpu& gpu, CUevent event) : gpu_(gpu), event_(event) {}
  ~GpuEvent() override {
    gpu_.Release("cuEventDestroy",
                 [&](const DriverApi& api) { return api.cuEventDestroy(event_); });
  }
  CUevent get() const { return event_; }

 private:
  Gpu& gpu_;
  CUevent event_;
};

class GpuGraph final : public DeviceGraph {
 public:
  GpuGraph(Gpu& gpu, StreamTails& tails, CUgraphExec graph)
      : gpu_(gpu), tails_(tails), graph_(graph) {}
  ~GpuGraph() override {
    gpu_.Release("cuGraphExecDestroy",
                 [&](const DriverApi& api) { return api.cuGraphExecDestroy(graph_); });
  }
  Status Launch(Stream stream) override {
    tails_.GaveOther(Native(stream));
    return gpu_.Call("cuGraphLaunch", [&](const DriverApi& api) {
      return api.cuGraphLaunch(graph_, Native(stream));
    });
  }

 private:
  Gpu& gpu_;
  StreamTails& tails_;
  CUgraphExec graph_;
};

/// Refers to a module of the device's cache.
class GpuModule final : public DeviceModule {
 public:
  GpuModule(Gpu& gpu, CUmodule module) : gpu_(gpu), module_(module) {}
  Result<void*> Function(const char* name) const override {
    CUfunction function = nullptr;
    CUresult result = CUDA_SUCCESS;
    Status found = gpu_.Call("cuModuleGetFunction", [&](const DriverApi& api) {
      return result = api.cuModuleGetFunction(&function, module_, name);
    });
    if (found) return static_cast<void*>(function);
    const ErrorCode code =
        result == CUDA_ERROR_NOT_FOUND ? ErrorCode::kNotFound : found.error().code;
    return Fail(code, Format("{} (function {})", found.error().message, name));
  }

 private:
  Gpu& gpu_;
  CUmodule module_;
};

/// The modules of a context by digest of their image. They stay until the device goes: loading one
/// takes a millisecond and may wait for the GPU, keeping it takes 0.1 MB, and a kernel of it may
/// still run when the last plan that knew it is gone.
class ModuleCache {
 public:
  explicit ModuleCache(Gpu& gpu) : gpu_(gpu) {}
  ModuleCache(const ModuleCache&) = delete;
  ModuleCache& operator=(const ModuleCache&) = delete;
  ~ModuleCache() {
    for (const auto& entry : modules_) {
      gpu_.Release("cuModuleUnload",
                   [&](const DriverApi& api) { return api.cuModuleUnload(entry.second); });
    }
  }

  Result<CUmodule> Load(std::string_view image) {
    if (Status whole = CheckCubin(image); !whole) return Fail(whole.error());
    const Result<Sha256Digest> digest = Sha256(image);
    if (!digest) return Fail(digest.error());
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = modules_.find(*digest);
    if (known != modules_.end()) return known->second;
    CUmodule module = nullptr;
    Status loaded = gpu_.Call("cuModuleLoadDataEx", [&](const DriverApi& api) {
      return api.cuModuleLoadDataEx(&module, image.data(), 0, nullptr, nullptr);
    });
    if (!loaded) return Fail(loaded.error());
    modules_.emplace(*digest, module);
    return module;
  }

 private:
  Gpu& gpu_;
  std::mutex mutex_;
  std::map<Sha256Digest, CUmodule> modules_;
};

class CudaDeviceImpl final : public CudaDevice,
                             public TellsMemory,
                             public TellsSlowdown,
                             public TellsLoss {
 public:
  CudaDeviceImpl(Context context, DeviceSpec spec, int ordinal, std::string name,
                 const CudaDeviceOptions& options)
      : programmatic_(options.programmatic_launches && GetEnv("TILEWRIGHT_PDL") != "0"),
        gpu_(std::move(context), std::move(name)),
        executor_(options.executor),
        modules_(gpu_),
        spec_(std::move(spec)),
        ordinal_(ordinal) {}

  /// To be called once, before anything else.
  Status Start() {
    Result<std::unique_ptr<DeviceStream>> made = CreateStream();
    if (!made) return Fail(made.error());
    default_stream_ = std::move(*made);
    return {};
  }

  const DeviceSpec& spec() const override { return spec_; }
  bool host_accessible() const override { return false; }

  Result<MemorySpace> Memory() override;
  bool Slowed() override;
  bool Lost() const override { return gpu_.lost(); }
  Result<DeviceMemory> Allocate(std::size_t bytes) override;
  Result<DeviceMemory> AllocateStaging(std::size_t bytes) override;

  Status Upload(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return Move("cuMemcpyHtoDAsync", bytes, stream, [&](const DriverApi& api) {
      return api.cuMemcpyHtoDAsync(Address(to), from, bytes, Native(stream));
    });
  }
  Status Download(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return Move("cuMemcpyDtoHAsync", bytes, stream, [&](const DriverApi& api) {
      return api.cuMemcpyDtoHAsync(to, Address(from), bytes, Native(stream));
    });
  }
  Status Copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return Move("cuMemcpyDtoDAsync", bytes, stream, [&](const DriverApi& api) {
      return api.cuMemcpyDtoDAsync(Address(to), Address(from), bytes, Native(stream));
    });
  }
  Status Fill(void* to, std::uint8_t value, std::size_t bytes, Stream stream) override {
    return Move("cuMemsetD8Async", bytes, stream, [&](const DriverApi& api) {
      return api.cuMemsetD8Async(Address(to), value, bytes, Native(stream));
    });
  }

  Stream default_stream() override { return default_stream_->stream(); }
  Result<std::unique_ptr<DeviceStream>> CreateStream() override;
  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    return MakeEvent(CU_EVENT_DISABLE_TIMING);
  }
  Result<std::unique_ptr<DeviceEvent>> CreateTimer() override {
    return MakeEvent(CU_EVENT_DEFAULT);
  }
  Result<double> MicrosBetween(const DeviceEvent& begin, const DeviceEvent& end) override;
  Status Record(DeviceEvent& event, Stream stream) override {
    tails_.GaveOther(Native(stream));
    return gpu_.Call("cuEventRecord", [&](const DriverApi& api) {
      return api.cuEventRecord(Of(event), Native(stream));
    });
  }
  Status Wait(Stream stream, const DeviceEvent& event) override {
    tails_.GaveOther(Native(stream));
    return gpu_.Call("cuStreamWaitEvent", [&](const DriverApi& api) {
      return api.cuStreamWaitEvent(Native(stream), Of(event), CU_EVENT_WAIT_DEFAULT);
    });
  }
  Status WaitOnHost(const DeviceEvent& event) override {
    return gpu_.Call("cuEventSynchronize",
                     [&](const DriverApi& api) { return api.cuEventSynchronize(Of(event)); });
  }
  Status Synchronize(Stream stream) override {
    return gpu_.Call("cuStreamSynchronize",
                     [&](const DriverApi& api) { return api.cuStreamSynchronize(Native(stream)); });
  }

  bool can_capture() const override { return true; }
  Result<std::unique_ptr<DeviceGraph>> Capture(Stream stream,
                                               const std::function<Status()>& submit) override;

  Result<std::unique_ptr<DeviceModule>> LoadModule(std::span<const std::byte> image) override {
    const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
    const Result<CUmodule> module = modules_.Load(bytes);
    if (!module) return Fail(module.error());
    return std::unique_ptr<DeviceModule>(std::make_unique<GpuModule>(gpu_, *module));
  }
  Status AllowDynamicSmem(void* function, std::uint32_t bytes) override;
  Status PreferSharedMemory(void* function) override;
  Status CheckFits(void* function, std::uint32_t threads,
                   std::uint32_t dynamic_smem_bytes) override;
  Status Launch(void* function, CudaLaunch& launch, Stream stream) override;
  Result<std::unique_ptr<ReadyLaunch>> Ready(void* function, CudaLaunch launch,
                                             std::shared_ptr<DeviceModule> module,
                                             Explain explain) override;
  Status InContext(std::string_view call, Status (*f)(void*), void* of) override {
    return gpu_.Within(call, f, of);
  }
  void GaveOtherWork(Stream stream) override { tails_.GaveOther(Native(stream)); }

 private:
  Result<std::unique_ptr<DeviceEvent>> MakeEvent(unsigned flags);
  Status EncodeMapsOf(CudaLaunch& launch);
  static CUevent Of(const DeviceEvent& event) { return static_cast<const GpuEvent&>(event).get(); }

  /// A copy or fill; of nothing, none, since there may be no addresses either.
  template <class F>
  Status Move(std::string_view name, std::size_t bytes, Stream stream, F&& f) {
    tails_.GaveOther(Native(stream));
    Status moved =
        gpu_.Call(name, [&](const DriverApi& api) { return bytes > 0 ? f(api) : CUDA_SUCCESS; });
    if (moved) return {};
    return Fail(moved.error().code, Format("{} ({})", moved.error().message, HumanBytes(bytes)));
  }

  // No pool in the order of a stream: memory is allocated when something is prepared, never in a
  // pass, and may have been used in any stream when it is freed, which cuMemFree waits for.
  void Free(void* data, std::size_t) override {
    gpu_.Release("cuMemFree", [&](const DriverApi& api) { return api.cuMemFree(Address(data)); });
  }
  void FreeStaging(void* data, std::size_t) override {
    gpu_.Release("cuMemFreeHost", [&](const DriverApi& api) { return api.cuMemFreeHost(data); });
  }

  bool programmatic_;
  Gpu gpu_;
  StreamTails tails_;
  Executor* executor_;
  ModuleCache modules_;
  TensorMapCache maps_;
  DeviceSpec spec_;
  std::unique_ptr<DeviceStream> default_stream_;
  int ordinal_;
  std::once_flag nvml_asked_;
  std::unique_ptr<Nvml> nvml_;  ///< nullptr where there is none
};

Result<DeviceMemory> CudaDeviceImpl::Allocate(std::size_t bytes) {
  if (bytes == 0) return DeviceMemory();
  CUdeviceptr made = 0;
  const Status allocated =
      gpu_.Call("cuMemAlloc", [&](const DriverApi& api) { return api.cuMemAlloc(&made, bytes); });
  if (allocated) return DeviceMemory(*this, reinterpret_cast<void*>(made), bytes, false);
  const Error& error = allocated.error();
  if (error.code != ErrorCode::kOutOfMemory) return Fail(error);
  const Result<MemorySpace> memory = Memory();
  if (!memory) return Fail(error.code, Format("{} ({})", error.message, HumanBytes(bytes)));
  return Fail(error.code, Format("{} ({}; {} of {} are free)", error.message, HumanBytes(bytes),
                                 HumanBytes(memory->free), HumanBytes(memory->total)));
}

/// NVML is opened when it is first asked: most processes time nothing.
bool CudaDeviceImpl::Slowed() {
  std::call_once(nvml_asked_, [this] {
    const Result<std::string> bus_id = BusIdOf(gpu_.driver(), ordinal_);
    if (!bus_id) return;
    if (Result<std::unique_ptr<Nvml>> nvml = Nvml::Open(*bus_id)) nvml_ = std::move(*nvml);
  });
  return nvml_ != nullptr && nvml_->Slowed();
}

Result<MemorySpace> CudaDeviceImpl::Memory() {
  std::size_t free = 0, total = 0;
  const Status asked = gpu_.Call(
      "cuMemGetInfo", [&](const DriverApi& api) { return api.cuMemGetInfo(&free, &total); });
  if (!asked) return Fail(asked.error());
  return MemorySpace{free, total};
}

Result<DeviceMemory> CudaDeviceImpl::AllocateStaging(std::size_t bytes) {
  if (bytes == 0) return DeviceMemory();
  void* made = nullptr;
  const Status allocated = gpu_.Call("cuMemHostAlloc", [&](const DriverApi& api) {
    return api.cuMemHostAlloc(&made, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  });
  if (!allocated) {
    return Fail(allocated.error().code, Format("{} ({} of pinned host memory)",
                                               allocated.error().message, HumanBytes(bytes)));
  }
  return DeviceMemory(*this, made, bytes, true);
}

Result<std::unique_ptr<DeviceStream>> CudaDeviceImpl::CreateStream() {
  CUstream made = nullptr;
  const Status created = gpu_.Call("cuStreamCreate", [&](const DriverApi& api) {
    return api.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
  });
  if (!created) return Fail(created.error());
  return std::unique_ptr<DeviceStream>(std::make_unique<GpuStream>(gpu_, tails_, made, executor_));
}

Result<double> CudaDeviceImpl::MicrosBetween(const DeviceEvent& begin, const DeviceEvent& end) {
  float ms = 0;
  const Status asked = gpu_.Call("cuEventElapsedTime", [&](const DriverApi& api) {
    return api.cuEventElapsedTime(&ms, Of(begin), Of(end));
  });
  if (!asked) return Fail(asked.error());
  return static_cast<double>(ms) * 1e3;
}

Result<std::unique_ptr<DeviceEvent>> CudaDeviceImpl::MakeEvent(unsigned flags) {
  CUevent made = nullptr;
  const Status created = gpu_.Call(
      "cuEventCreate", [&](const DriverApi& api) { return api.cuEventCreate(&made, flags); });
  if (!created) return Fail(created.error());
  return std::unique_ptr<DeviceEvent>(std::make_unique<GpuEvent>(gpu_, made));
}

/// Other threads go on using the driver meanwhile, so the capture is of this thread's calls alone.
Result<std::unique_ptr<DeviceGraph>> CudaDeviceImpl::Capture(
    Stream stream, const std::function<Status()>& submit) {
  const Status begun = gpu_.Call("cuStreamBeginCapture", [&](const DriverApi& api) {
    return api.cuStreamBeginCapture(Native(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  });
  if (!begun) return Fail(begun.error());
  // The first kernel of the graph has nothing in front of it, and is to wait for all before the
  // graph; nor is a captured kernel in front of what is given to the stream later.
  tails_.GaveOther(Native(stream));
  const Status submitted = submit();
  tails_.GaveOther(Native(stream));
  CUgraph captured = nullptr;
  const Status ended = gpu_.Call("cuStreamEndCapture", [&](const DriverApi& api) {
    return api.cuStreamEndCapture(Native(stream), &captured);
  });
  CUgraphExec made = nullptr;
  Status instantiated;
  if (submitted && ended) {
    instantiated = gpu_.Call("cuGraphInstantiate", [&](const DriverApi& api) {
      return api.cuGraphInstantiateWithFlags(&made, captured, 0);
    });
  }
  if (captured != nullptr) {
    gpu_.Release("cuGraphDestroy",
                 [&](const DriverApi& api) { return api.cuGraphDestroy(captured); });
  }
  for (const Status* status :
       std::initializer_list<const Status*>{&submitted, &ended, &instantiated}) {
    if (!*status) return Fail(status->error());
  }
  return std::unique_ptr<DeviceGraph>(std::make_unique<GpuGraph>(gpu_, tails_, made));
}

Status CudaDeviceImpl::AllowDynamicSmem(void* function, std::uint32_t bytes) {
  Status allowed = gpu_.Call("cuFuncSetAttribute", [&](const DriverApi& api) {
    return api.cuFuncSetAttribute(static_cast<CUfunction>(function),
                                  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  static_cast<int>(bytes));
  });
  if (allowed) return {};
  return Fail(allowed.error().code,
              Format("{} ({} bytes of dynamic shared memory)", allowed.error().message, bytes));
}

Status CudaDeviceImpl::PreferSharedMemory(void* function) {
  return gpu_.Call("cuFuncSetAttribute", [&](const DriverApi& api) {
    return api.cuFuncSetAttribute(static_cast<CUfunction>(function),
                                  CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                  CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
  });
}

Status CudaDeviceImpl::CheckFits(void* function, std::uint32_t threads,
                                 std::uint32_t dynamic_smem_bytes) {
  int ctas = 0, registers = 0;
  Status asked =
      gpu_.Call("cuOccupancyMaxActiveBlocksPerMultiprocessor", [&](const DriverApi& api) {
        const auto of = static_cast<CUfunction>(function);
        const CUresult known = api.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, of);
        if (known != CUDA_SUCCESS) return known;
        return api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, of, static_cast<int>(threads),
                                                               dynamic_smem_bytes);
      });
  if (!asked || ctas > 0) return asked;
  return Fail(ErrorCode::kUnsupported,
              Format("{} threads of {} registers and {} bytes of dynamic shared memory do not fit "
                     "on a multiprocessor",
                     threads, registers, dynamic_smem_bytes));
}

Status CudaDeviceImpl::EncodeMapsOf(CudaLaunch& launch) {
  if (Status alive = gpu_.Alive("cuLaunchKernelEx"); !alive) return alive;
  for (const TensorMapSlot& slot : launch.maps()) {
    const std::span<std::byte, kTensorMapBytes> out(launch.params.data() + slot.offset,
                                                    kTensorMapBytes);
    if (const TensorMapCache::Map* known = maps_.Find(slot.desc)) {
      std::copy(known->begin(), known->end(), out.begin());
      continue;
    }
    if (Status encoded = EncodeTensorMap(gpu_.driver(), slot.desc, out); !encoded) return encoded;
    TensorMapCache::Map map;
    std::copy(out.begin(), out.end(), map.begin());
    maps_.Insert(slot.desc, map);
  }
  return {};
}

Status CudaDeviceImpl::Launch(void* function, CudaLaunch& launch, Stream stream) {
  if (Status encoded = EncodeMapsOf(launch); !encoded) return encoded;
  return QueueLaunch(gpu_, tails_, LaunchConfig(launch), static_cast<CUfunction>(function),
                     launch.params, Native(stream), programmatic_ && launch.programmatic);
}

Result<std::unique_ptr<ReadyLaunch>> CudaDeviceImpl::Ready(void* function, CudaLaunch launch,
                                                           std::shared_ptr<DeviceModule> module,
                                                           Explain explain) {
  if (Status encoded = EncodeMapsOf(launch); !encoded)
    return tl::unexpected(explain(encoded.error()));
  return std::unique_ptr<ReadyLaunch>(std::make_unique<GpuLaunch>(
      gpu_, tails_, function, launch, programmatic_ && launch.programmatic, std::move(module),
      std::move(explain)));
}

}  // namespace

Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal, const CudaDeviceOptions& options) {
  const Result<const CudaDriver*> driver = CudaDriver::Load(options.library);
  if (!driver) return Fail(driver.error());
  Result<DeviceSpec> spec = (*driver)->Describe(ordinal);
  if (!spec) return Fail(spec.error());
  if (options.rates) static_cast<DeviceRates&>(*spec) = *options.rates;
  // Retaining a context makes it current; the caller's comes back.
  const ContextScope caller((*driver)->api());
  Result<Context> context = Context::Retain(**driver, ordinal);
  std::string name = Format("GPU {} ({})", ordinal, spec->name);
  if (!context) return Fail(context.error().code, name + ": " + context.error().message);
  auto device = std::make_unique<CudaDeviceImpl>(std::move(*context), std::move(*spec), ordinal,
                                                 std::move(name), options);
  if (Status started = device->Start(); !started) return Fail(started.error());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace tilewright::cuda
