#include <elf.h>

#include <array>
#include <cstring>
#include <utility>

#include "core/text.h"
#include "device/cuda/driver.h"

namespace tilewright::cuda {

// Returns the error of a driver call from a function that returns a Result or Status.
#define TILEWRIGHT_CU(driver, name, ...)                                          \
  do {                                                                            \
    if (Status ok = (driver).Check((driver).api().name(__VA_ARGS__), #name); !ok) \
      return Fail(ok.error());                                                    \
  } while (false)

Result<Context> Context::Retain(const CudaDriver& driver, int ordinal) {
  CUdevice device = 0;
  TILEWRIGHT_CU(driver, cuDeviceGet, &device, ordinal);
  Context context;
  TILEWRIGHT_CU(driver, cuDevicePrimaryCtxRetain, &context.context_, device);
  context.primary_ = UniqueHandle<CUdevice, ReleaseContext>(&driver, device);
  if (Status current = context.MakeCurrent(); !current) return Fail(current.error());
  return context;
}

Status Context::MakeCurrent() const {
  TILEWRIGHT_CU(driver(), cuCtxSetCurrent, context_);
  return {};
}

Status Context::Synchronize() const {
  TILEWRIGHT_CU(driver(), cuCtxSynchronize);
  return {};
}

Result<int> Context::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  TILEWRIGHT_CU(driver(), cuDeviceGetAttribute, &value, attribute, device());
  return value;
}

Result<Context::Memory> Context::GetMemory() const {
  Memory memory;
  TILEWRIGHT_CU(driver(), cuMemGetInfo, &memory.free, &memory.total);
  return memory;
}

Result<StreamHandle> StreamHandle::Create(const Context& context) {
  CUstream made = nullptr;
  TILEWRIGHT_CU(context.driver(), cuStreamCreate, &made, CU_STREAM_NON_BLOCKING);
  StreamHandle stream;
  stream.stream_ = UniqueHandle<CUstream, ReleaseStream>(&context.driver(), made);
  return stream;
}

Status StreamHandle::Synchronize() const {
  TILEWRIGHT_CU(stream_.driver(), cuStreamSynchronize, get());
  return {};
}

Result<Event> Event::Create(const Context& context) {
  CUevent made = nullptr;
  TILEWRIGHT_CU(context.driver(), cuEventCreate, &made, CU_EVENT_DEFAULT);
  Event event;
  event.event_ = UniqueHandle<CUevent, ReleaseEvent>(&context.driver(), made);
  return event;
}

Status Event::Record(const StreamHandle& stream) const {
  TILEWRIGHT_CU(event_.driver(), cuEventRecord, event_.get(), stream.get());
  return {};
}

Status Event::Synchronize() const {
  TILEWRIGHT_CU(event_.driver(), cuEventSynchronize, event_.get());
  return {};
}

Result<double> Event::MicrosecondsTo(const Event& end) const {
  float ms = 0;
  TILEWRIGHT_CU(event_.driver(), cuEventElapsedTime, &ms, event_.get(), end.event_.get());
  return double{ms} * 1e3;
}

Result<DeviceBuffer> DeviceBuffer::Allocate(const Context& context, std::size_t bytes) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  CUdeviceptr made = 0;
  if (Status ok =
          context.driver().Check(context.driver().api().cuMemAlloc(&made, bytes), "cuMemAlloc");
      !ok) {
    return Fail(ok.error().code, Format("{} (of {})", ok.error().message, HumanBytes(bytes)));
  }
  buffer.memory_ = UniqueHandle<CUdeviceptr, ReleaseMemory>(&context.driver(), made);
  buffer.bytes_ = bytes;
  return buffer;
}

Status DeviceBuffer::Upload(std::span<const std::byte> data, std::size_t offset,
                            const StreamHandle& s) const {
  if (offset > bytes_ || data.size() > bytes_ - offset) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("upload of {} bytes at {}: the buffer has {}", data.size(), offset, bytes_));
  }
  if (data.empty()) return {};
  TILEWRIGHT_CU(memory_.driver(), cuMemcpyHtoDAsync, address() + offset, data.data(), data.size(),
                s.get());
  return s.Synchronize();
}

Status DeviceBuffer::Download(std::span<std::byte> data, std::size_t offset,
                              const StreamHandle& s) const {
  if (offset > bytes_ || data.size() > bytes_ - offset) {
    return Fail(ErrorCode::kInvalidArgument, Format("download of {} bytes at {}: the buffer has {}",
                                                    data.size(), offset, bytes_));
  }
  if (data.empty()) return {};
  TILEWRIGHT_CU(memory_.driver(), cuMemcpyDtoHAsync, data.data(), address() + offset, data.size(),
                s.get());
  return s.Synchronize();
}

Status DeviceBuffer::Fill(std::uint8_t value, const StreamHandle& stream) const {
  if (bytes_ == 0) return {};
  TILEWRIGHT_CU(memory_.driver(), cuMemsetD8Async, address(), value, bytes_, stream.get());
  return {};
}

LaunchConfig::LaunchConfig(const CudaLaunch& launch) {
  config_.gridDimX = launch.grid[0];
  config_.gridDimY = launch.grid[1];
  config_.gridDimZ = launch.grid[2];
  config_.blockDimX = launch.block[0];
  config_.blockDimY = launch.block[1];
  config_.blockDimZ = launch.block[2];
  config_.sharedMemBytes = launch.dynamic_smem_bytes;
  // Compared by its product: a call of memcmp takes as long as all of this.
  if (launch.cluster[0] * launch.cluster[1] * launch.cluster[2] != 1) {
    CUlaunchAttribute& cluster = attributes_[config_.numAttrs++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = launch.cluster[0];
    cluster.value.clusterDim.y = launch.cluster[1];
    cluster.value.clusterDim.z = launch.cluster[2];
  }
  if (launch.cooperative) {
    CUlaunchAttribute& all = attributes_[config_.numAttrs++];
    all.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    all.value.cooperative = 1;
  }
  CUlaunchAttribute& early = attributes_[config_.numAttrs];
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
}

Status Function::Launch(const CudaLaunch& launch, const StreamHandle& stream) const {
  const CUresult queued = LaunchConfig(launch).Queue(driver_->api(), function_, launch.params,
                                                     stream.get(), launch.programmatic);
  return driver_->Check(queued, "cuLaunchKernelEx");
}

Status Function::AllowDynamicSmem(std::uint32_t bytes) const {
  if (Status ok = driver_->Check(
          driver_->api().cuFuncSetAttribute(
              function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(bytes)),
          "cuFuncSetAttribute");
      !ok) {
    return Fail(ok.error().code,
                Format("{} ({} bytes of dynamic shared memory)", ok.error().message, bytes));
  }
  return {};
}

Result<int> Function::Attribute(CUfunction_attribute attribute) const {
  int value = 0;
  TILEWRIGHT_CU(*driver_, cuFuncGetAttribute, &value, attribute, function_);
  return value;
}

Result<int> Function::Occupancy(int threads, std::size_t dynamic_smem_bytes) const {
  int blocks = 0;
  TILEWRIGHT_CU(*driver_, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function_, threads,
                dynamic_smem_bytes);
  return blocks;
}

Status CheckCubin(std::string_view cubin) {
  if (cubin.size() < sizeof(Elf64_Ehdr) || cubin.substr(0, SELFMAG) != ELFMAG) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{} bytes that are no cubin: no ELF header", cubin.size()));
  }
  Elf64_Ehdr header;
  std::memcpy(&header, cubin.data(), sizeof header);
  const std::size_t sections = std::size_t{header.e_shnum} * header.e_shentsize;
  const std::size_t segments = std::size_t{header.e_phnum} * header.e_phentsize;
  const auto beyond = [&](std::uint64_t offset, std::size_t bytes) {
    return bytes > cubin.size() || offset > cubin.size() - bytes;
  };
  if (beyond(header.e_shoff, sections) || beyond(header.e_phoff, segments)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{} bytes that are no whole cubin: its tables end beyond", cubin.size()));
  }
  return {};
}

Result<Module> Module::Load(const Context& context, std::string_view cubin) {
  if (Status whole = CheckCubin(cubin); !whole) return Fail(whole.error());
  CUmodule made = nullptr;
  TILEWRIGHT_CU(context.driver(), cuModuleLoadDataEx, &made, cubin.data(), 0, nullptr, nullptr);
  Module module;
  module.module_ = UniqueHandle<CUmodule, ReleaseModule>(&context.driver(), made);
  return module;
}

Result<Function> Module::Get(const std::string& symbol) const {
  Function function;
  function.driver_ = &module_.driver();
  if (Status ok = function.driver_->Check(function.driver_->api().cuModuleGetFunction(
                                              &function.function_, module_.get(), symbol.c_str()),
                                          "cuModuleGetFunction");
      !ok) {
    return Fail(ok.error().code, Format("{} ({})", ok.error().message, symbol));
  }
  return function;
}

Status Graph::Begin(const Context& context, const StreamHandle& stream) {
  TILEWRIGHT_CU(context.driver(), cuStreamBeginCapture, stream.get(),
                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return {};
}

Result<Graph> Graph::End(const Context& context, const StreamHandle& stream) {
  const CudaDriver& driver = context.driver();
  CUgraph ended = nullptr;
  TILEWRIGHT_CU(driver, cuStreamEndCapture, stream.get(), &ended);
  const UniqueHandle<CUgraph, ReleaseCaptured> captured(&driver, ended);
  CUgraphExec made = nullptr;
  TILEWRIGHT_CU(driver, cuGraphInstantiateWithFlags, &made, captured.get(), 0);
  Graph graph;
  graph.graph_ = UniqueHandle<CUgraphExec, ReleaseGraph>(&driver, made);
  return graph;
}

Status Graph::Launch(const StreamHandle& stream) const {
  TILEWRIGHT_CU(graph_.driver(), cuGraphLaunch, graph_.get(), stream.get());
  return {};
}

namespace {

/// Bytes from the first element of a tensor to the end of its last.
std::uint64_t ExtentBytes(const TensorMapDesc& desc) {
  std::uint64_t bytes = desc.dims[0] * BytesOf(desc.type, 1);
  for (std::uint32_t i = 1; i < desc.rank; ++i) bytes += (desc.dims[i] - 1) * desc.strides[i - 1];
  return bytes;
}

/// Drivers before CUDA 13.2 set this bit of every map, which says that the tensor is not small, and
/// the copy engine then computes wrong addresses at the edges of one that is.
void ClearLargeBit(const CudaDriver& driver, const TensorMapDesc& desc, CUtensorMap& map) {
  constexpr int kMendedDriver = 13020;
  constexpr std::uint64_t kSmallBytes = 128 << 10;
  if (driver.version() < kMendedDriver && ExtentBytes(desc) < kSmallBytes) {
    map.opaque[1] &= ~(cuuint64_t{1} << 21);
  }
}

}  // namespace

Status EncodeTensorMap(const CudaDriver& driver, const TensorMapDesc& desc,
                       std::span<std::byte, kTensorMapBytes> out) {
  CUtensorMap map{};
  static_assert(sizeof map == kTensorMapBytes);
  constexpr std::array<std::uint32_t, 5> kSteps{1, 1, 1, 1, 1};
  const CUtensorMapDataType type = desc.type == DataType::kF32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : desc.type == DataType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : desc.type == DataType::kI8  ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                                                 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const CUresult result = driver.api().cuTensorMapEncodeTiled(
      &map, type, desc.rank, reinterpret_cast<void*>(desc.address), desc.dims.data(),
      desc.strides.data(), desc.box.data(), kSteps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      desc.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (Status ok = driver.Check(result, "cuTensorMapEncodeTiled"); !ok) {
    return Fail(ok.error().code,
                Format("{} ({}, {}x{} elements, {} bytes a row, box {}x{}, at {:#x})",
                       ok.error().message, DataTypeName(desc.type), desc.dims[0], desc.dims[1],
                       desc.strides[0], desc.box[0], desc.box[1], desc.address));
  }
  ClearLargeBit(driver, desc, map);
  std::memcpy(out.data(), &map, sizeof map);
  return {};
}

#undef TILEWRIGHT_CU

}  // namespace tilewright::cuda
