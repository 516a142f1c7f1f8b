// The functions of a libcuda that has no GPU behind it (fake_cuda.h): driver, boards, contexts,
// memory, modules and launches.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fake_cuda_state.h"

using tilewright::cuda::Ctx;
using tilewright::cuda::FakeCuda;
using tilewright::cuda::Fn;
using tilewright::cuda::Mod;
using tilewright::cuda::State;
using tilewright::cuda::TheState;

namespace {

void* Pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

/// A copy that looks at its device addresses when it is done, as a GPU does.
CUresult GiveCopy(CUstream stream, CUdeviceptr checked, std::size_t bytes,
                  std::function<void()> copy) {
  Ctx& ctx = *State::current;
  return TheState().Give(ctx, stream, {[&ctx, checked, bytes, copy = std::move(copy)]() {
                           if (!State::Valid(ctx, checked, bytes))
                             return CUDA_ERROR_ILLEGAL_ADDRESS;
                           copy();
                           return CUDA_SUCCESS;
                         }});
}

int Attribute(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return State::kMaxSmem;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 60 << 20;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1980000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 3201000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 6144;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return 0x18;
    default:
      return 0;
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

FakeCuda* fake_cuda() { return &TheState(); }

CUresult cuInit(unsigned) {
  return TheState().Enter("cuInit", [] { return static_cast<CUresult>(TheState().init); });
}
CUresult cuDriverGetVersion(int* version) {
  *version = TheState().version;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                              : "CUDA_ERROR_OTHER";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** words) {
  *words = "the fake driver's words";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = State::kGpus;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < State::kGpus ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "NVIDIA H200", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = Attribute(attribute);
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = TheState().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return TheState().Enter("cuDevicePrimaryCtxRetain", [&] {
    Ctx& ctx = TheState().gpus[static_cast<std::size_t>(device)];
    if (ctx.retained++ == 0) ctx.legacy.ctx = &ctx;
    *context = reinterpret_cast<CUcontext>(&ctx);
    return CUDA_SUCCESS;
  });
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return TheState().Enter("cuDevicePrimaryCtxRelease", [&] {
    Ctx& ctx = TheState().gpus[static_cast<std::size_t>(device)];
    if (--ctx.retained == 0) TheState().Drop(ctx);
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxSetCurrent(CUcontext context) {
  return TheState().Enter("cuCtxSetCurrent", [&] {
    State::current = reinterpret_cast<Ctx*>(context);
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  if (TheState().mute) {
    *context = reinterpret_cast<CUcontext>(State::current);
    return CUDA_SUCCESS;
  }
  return TheState().Enter("cuCtxGetCurrent", [&] {
    *context = reinterpret_cast<CUcontext>(State::current);
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxSynchronize() {
  return TheState().InContext("cuCtxSynchronize",
                              [](Ctx& ctx) { return TheState().DriveAll(ctx); });
}

CUresult cuMemAlloc(CUdeviceptr* memory, std::size_t bytes) {
  return TheState().InContext("cuMemAlloc", [&](Ctx& ctx) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > TheState().memory_bytes - ctx.used) return CUDA_ERROR_OUT_OF_MEMORY;
    void* at = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(at, TheState().fresh,
                std::min(bytes, std::size_t{1} << 20));  // more would only take time
    *memory = reinterpret_cast<CUdeviceptr>(at);
    ctx.memory[*memory] = bytes;
    ctx.used += bytes;
    return CUDA_SUCCESS;
  });
}
CUresult cuMemFree(CUdeviceptr memory) {
  return TheState().InContext("cuMemFree", [&](Ctx& ctx) {
    const auto found = ctx.memory.find(memory);
    if (found == ctx.memory.end()) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = TheState().DriveAll(ctx); result != CUDA_SUCCESS) return result;
    ctx.used -= found->second;
    ctx.memory.erase(found);
    std::free(Pointer(memory));
    return CUDA_SUCCESS;
  });
}
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  return TheState().InContext("cuMemGetInfo", [&](Ctx& ctx) {
    *free = TheState().memory_bytes - ctx.used;
    *total = TheState().memory_bytes;
    return CUDA_SUCCESS;
  });
}
CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return TheState().InContext("cuMemHostAlloc", [&](Ctx& ctx) {
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    ctx.pinned.insert(*memory);
    return CUDA_SUCCESS;
  });
}
CUresult cuMemFreeHost(void* memory) {
  return TheState().InContext("cuMemFreeHost", [&](Ctx& ctx) {
    if (ctx.pinned.erase(memory) == 0) return CUDA_ERROR_INVALID_VALUE;
    std::free(memory);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return TheState().InContext("cuMemcpyHtoDAsync", [&](Ctx&) {
    return GiveCopy(stream, to, bytes, [=] { std::memcpy(Pointer(to), from, bytes); });
  });
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return TheState().InContext("cuMemcpyDtoHAsync", [&](Ctx&) {
    return GiveCopy(stream, from, bytes, [=] { std::memcpy(to, Pointer(from), bytes); });
  });
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return TheState().InContext("cuMemcpyDtoDAsync", [&](Ctx& ctx) {
    return TheState().Give(ctx, stream, {[&ctx, to, from, bytes] {
                             if (!State::Valid(ctx, to, bytes) || !State::Valid(ctx, from, bytes)) {
                               return CUDA_ERROR_ILLEGAL_ADDRESS;
                             }
                             std::memcpy(Pointer(to), Pointer(from), bytes);
                             return CUDA_SUCCESS;
                           }});
  });
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  return TheState().InContext("cuMemsetD8Async", [&](Ctx&) {
    return GiveCopy(stream, to, bytes, [=] { std::memset(Pointer(to), value, bytes); });
  });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  return TheState().InContext("cuModuleLoadDataEx", [&](Ctx& ctx) {
    auto* made = new Mod{&ctx, {}};
    ctx.modules.insert(made);
    *module = reinterpret_cast<CUmodule>(made);
    return CUDA_SUCCESS;
  });
}
CUresult cuModuleUnload(CUmodule module) {
  return TheState().InContext("cuModuleUnload", [&](Ctx& ctx) {
    auto* gone = reinterpret_cast<Mod*>(module);
    if (ctx.modules.erase(gone) == 0) return CUDA_ERROR_INVALID_HANDLE;
    delete gone;
    return CUDA_SUCCESS;
  });
}
/// Every function is there whose name does not begin with "no".
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return TheState().InContext("cuModuleGetFunction", [&](Ctx& ctx) {
    auto* of = reinterpret_cast<Mod*>(module);
    if (ctx.modules.count(of) == 0) return CUDA_ERROR_INVALID_HANDLE;
    if (std::strncmp(name, "no", 2) == 0) return CUDA_ERROR_NOT_FOUND;
    Fn& found = of->functions[name];
    found.symbol = name;
    found.ctx = &ctx;
    *function = reinterpret_cast<CUfunction>(&found);
    return CUDA_SUCCESS;
  });
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return TheState().InContext("cuFuncSetAttribute", [&](Ctx&) {
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (static_cast<unsigned>(value) > State::kMaxSmem) return CUDA_ERROR_INVALID_VALUE;
    reinterpret_cast<Fn*>(function)->smem_limit = static_cast<unsigned>(value);
    return CUDA_SUCCESS;
  });
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
  return TheState().InContext("cuOccupancyMaxActiveBlocksPerMultiprocessor", [&](Ctx&) {
    *blocks = TheState().ctas_that_fit;
    return CUDA_SUCCESS;
  });
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void**) {
  if (TheState().mute) return CUDA_SUCCESS;
  return TheState().InContext("cuLaunchKernelEx", [&](Ctx& ctx) {
    const auto* fn = reinterpret_cast<Fn*>(function);
    if (fn->ctx != &ctx) return CUDA_ERROR_INVALID_HANDLE;
    if (config->sharedMemBytes > fn->smem_limit) return CUDA_ERROR_INVALID_VALUE;
    FakeCuda::Launch launch;
    launch.symbol = fn->symbol;
    launch.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
    launch.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
    launch.dynamic_smem_bytes = config->sharedMemBytes;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const CUlaunchAttribute& attribute = config->attrs[i];
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        launch.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        launch.cooperative = attribute.value.cooperative != 0;
    }
    const auto held = static_cast<unsigned>(Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                                            TheState().ctas_that_fit);
    if (launch.cooperative && launch.grid[0] * launch.grid[1] * launch.grid[2] > held)
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    launch.stream = reinterpret_cast<std::uintptr_t>(config->hStream);
    std::memcpy(launch.params.data(), params[0], launch.params.size());
    return TheState().Give(ctx, config->hStream, {[launch = std::move(launch)] {
                             State& state = TheState();
                             const auto& run = state.kernels;
                             state.clock_us += state.launch_us ? state.launch_us(launch) : 0;
                             return run ? static_cast<CUresult>(run(launch)) : CUDA_SUCCESS;
                           }});
  });
}

/// The description in the place of the encoded map.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank,
                                void* address, const cuuint64_t* dims, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  return TheState().Enter("cuTensorMapEncodeTiled", [&] {
    std::memset(map, 0, sizeof *map);
    map->opaque[0] = reinterpret_cast<std::uintptr_t>(address);
    map->opaque[1] = ~cuuint64_t{0};
    for (cuuint32_t i = 0; i < rank && i < 4; ++i) {
      map->opaque[2 + i] = dims[i];
      if (i + 1 < rank) map->opaque[6 + i] = strides[i];
      map->opaque[10 + i] = box[i];
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
#pragma GCC visibility pop
