#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>

#include <map>
#include <mutex>
#include <vector>

#include "core/text.h"
#include "device/cuda/rates.h"

namespace tilewright::cuda {
namespace {

constexpr int kOldestDriver = 12000;  // tensor maps and cuLaunchKernelEx

/// Places of libcuda.so.1 beside the loader's path: distributions, containers, WSL.
constexpr const char* kPlaces[] = {
    "libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
};

bool InStubs(std::string_view path) { return path.find("/stubs/") != std::string_view::npos; }

constexpr std::string_view kStubWords =
    "is the CUDA toolkit's stub for linking, which drives no GPU: remove its folder from "
    "LD_LIBRARY_PATH, or give the driver's own libcuda.so.1";

/// Closes what is not kept. The driver itself stays open for good.
struct Library {
  explicit Library(const char* path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) error = dlerror();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (handle != nullptr) dlclose(handle);
  }
  std::string Path() const {
    link_map* map = nullptr;
    return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : "";
  }
  void Keep() { handle = nullptr; }

  void* handle;
  std::string error;
};

#define TILEWRIGHT_STRING(name) #name
#define TILEWRIGHT_NAME(name) TILEWRIGHT_STRING(name)

/// The first function that the library lacks, or nullptr.
const char* Resolve(void* library, DriverApi& api) {
#define TILEWRIGHT_CUDA_RESOLVE(name)                        \
  if (void* found = dlsym(library, TILEWRIGHT_NAME(name))) { \
    api.name = reinterpret_cast<decltype(&::name)>(found);   \
  }                                                          \
  if (api.name == nullptr) return TILEWRIGHT_NAME(name);
  // The second version reports errors better; drivers before 12.8 have the first, alike in form.
  if (void* first = dlsym(library, "cuEventElapsedTime")) {
    api.cuEventElapsedTime = reinterpret_cast<decltype(&::cuEventElapsedTime)>(first);
  }
  TILEWRIGHT_CUDA_FUNCTIONS(TILEWRIGHT_CUDA_RESOLVE)
#undef TILEWRIGHT_CUDA_RESOLVE
  return nullptr;
}

}  // namespace

Result<const CudaDriver*> CudaDriver::Load(const std::string& path) {
  static std::mutex mutex;
  // Never freed: kernels and handles may be released by other statics at exit.
  static auto& loaded = *new std::map<std::string, Result<const CudaDriver*>>();
  std::lock_guard lock(mutex);
  const auto known = loaded.find(path);
  if (known != loaded.end()) return known->second;
  return loaded.emplace(path, LoadFile(path)).first->second;
}

Result<const CudaDriver*> CudaDriver::LoadFile(const std::string& path) {
  std::string looked;
  std::vector<std::string> places;
  if (path.empty()) {
    places.assign(std::begin(kPlaces), std::end(kPlaces));
  } else {
    if (InStubs(path)) return Fail(ErrorCode::kUnavailable, Format("{} {}", path, kStubWords));
    places.push_back(path);
  }
  for (const std::string& place : places) {
    Library library(place.c_str());
    if (library.handle == nullptr) {
      looked += Format("{}{}", looked.empty() ? "" : "; ", library.error);
      continue;
    }
    const std::string file = library.Path();
    if (InStubs(file)) {
      looked += Format("{}{} {}", looked.empty() ? "" : "; ", file, kStubWords);
      continue;
    }
    CudaDriver driver;
    driver.path_ = file;
    const char* missing = Resolve(library.handle, driver.api_);
    if (driver.api_.cuInit == nullptr) {
      return Fail(ErrorCode::kUnavailable,
                  Format("{} is not NVIDIA's driver: it has no cuInit", file));
    }
    const CUresult init = driver.api_.cuInit(0);
    if (init == CUDA_ERROR_STUB_LIBRARY) {
      return Fail(ErrorCode::kUnavailable, Format("{} {} (cuInit: 34)", file, kStubWords));
    }
    // From here on the library has threads and mappings of its own: closing it is not safe.
    library.Keep();
    if (missing != nullptr) {
      return Fail(ErrorCode::kUnavailable,
                  Format("{} lacks {}: the driver is older than CUDA 12.0", file, missing));
    }
    if (Status ok = driver.Check(init, "cuInit"); !ok) {
      return Fail(ErrorCode::kUnavailable, Format("{}: {}", file, ok.error().message));
    }
    if (Status ok =
            driver.Check(driver.api_.cuDriverGetVersion(&driver.version_), "cuDriverGetVersion");
        !ok) {
      return Fail(ok.error());
    }
    if (driver.version_ < kOldestDriver) {
      return Fail(ErrorCode::kUnavailable, Format("{} is driver {}: CUDA 12.0 or newer required",
                                                  file, driver.VersionText()));
    }
    return new CudaDriver(std::move(driver));
  }
  return Fail(ErrorCode::kUnavailable, Format("no NVIDIA driver (libcuda.so.1): {}", looked));
}

std::string CudaDriver::VersionText() const {
  return Format("{}.{}", version_ / 1000, version_ % 1000 / 10);
}

Status CudaDriver::Check(CUresult result, std::string_view call) const {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  const char* words = nullptr;
  api_.cuGetErrorName(result, &name);
  api_.cuGetErrorString(result, &words);
  ErrorCode code = ErrorCode::kInternal;
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      code = ErrorCode::kOutOfMemory;
      break;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      code = ErrorCode::kUnavailable;
      break;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      code = ErrorCode::kUnsupported;
      break;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NOT_FOUND:
      code = ErrorCode::kInvalidArgument;
      break;
    default:
      break;
  }
  return Fail(code, Format("{}: {} ({}): {}", call, name != nullptr ? name : "unknown error",
                           static_cast<int>(result), words != nullptr ? words : "no description"));
}

Result<int> CudaDriver::DeviceCount() const {
  int count = 0;
  if (Status ok = Check(api_.cuDeviceGetCount(&count), "cuDeviceGetCount"); !ok) {
    return Fail(ok.error());
  }
  return count;
}

Result<DeviceSpec> CudaDriver::Describe(int ordinal) const {
  Result<int> count = DeviceCount();
  if (!count) return Fail(count.error());
  if (ordinal < 0 || ordinal >= *count) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("GPU {}: there are {}, counted from 0", ordinal, *count));
  }
  CUdevice device = 0;
  char name[256] = "";
  int major = 0;
  int minor = 0;
  int smem = 0;
  int l2 = 0;
  DeviceSpec spec;
  const auto get = [&](int& value, CUdevice_attribute attribute) {
    return api_.cuDeviceGetAttribute(&value, attribute, device);
  };
  BoardClocks clocks;
  CUresult result = api_.cuDeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) result = api_.cuDeviceGetName(name, sizeof name, device);
  if (result == CUDA_SUCCESS) result = get(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  if (result == CUDA_SUCCESS) result = get(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  if (result == CUDA_SUCCESS) {
    result = get(spec.sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  }
  if (result == CUDA_SUCCESS) {
    result = get(smem, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  }
  if (result == CUDA_SUCCESS) result = get(l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  if (result == CUDA_SUCCESS) result = get(clocks.sm_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  if (result == CUDA_SUCCESS) {
    result = get(clocks.memory_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  }
  if (result == CUDA_SUCCESS) {
    result = get(clocks.bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  }
  if (Status ok = Check(result, "cuDeviceGetAttribute"); !ok) return Fail(ok.error());
  spec.kind = DeviceKind::kCuda;
  spec.name = name;
  spec.compute_capability = major * 10 + minor;
  spec.smem_bytes = smem;
  spec.l2_bytes = l2;
  spec.llc_bytes = l2;
  spec.driver = VersionText();
  static_cast<DeviceRates&>(spec) = BoardRates(spec, clocks);
  return spec;
}

Result<int> CudaDeviceCount(const std::string& library) {
  Result<const CudaDriver*> driver = CudaDriver::Load(library);
  if (!driver) return Fail(driver.error());
  return (*driver)->DeviceCount();
}

Result<DeviceSpec> CudaDeviceSpec(int ordinal, const std::string& library) {
  Result<const CudaDriver*> driver = CudaDriver::Load(library);
  if (!driver) return Fail(driver.error());
  return (*driver)->Describe(ordinal);
}

bool BuiltWithDriver() { return true; }

}  // namespace tilewright::cuda
