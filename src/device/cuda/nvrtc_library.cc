#include "device/cuda/nvrtc_library.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "core/text.h"
#include "device/cuda/nvrtc_identity.h"

namespace tilewright::cuda {
namespace {

/// The oldest that knows every option of ours; 12.8 does not know --no-cache.
constexpr int kOldestMajor = 12, kOldestMinor = 9;

/// Closes what is not kept.
class Handle {
 public:
  Handle(const char* file, int flags) : handle_(dlopen(file, flags)) {
    if (handle_ == nullptr) {
      const char* words = dlerror();
      error_ = words == nullptr ? "dlopen failed" : words;
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  void* get() const { return handle_; }
  const std::string& error() const { return error_; }
  void Keep() { handle_ = nullptr; }

 private:
  void* handle_;
  std::string error_;
};

template <class F>
bool Resolve(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

/// The first needed function that the library lacks, or nullptr.
const char* ResolveAll(void* library, NvrtcApi& api) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    if (!Resolve(library, name, function) && missing == nullptr) missing = name;
  };
  need("nvrtcVersion", api.Version);
  need("nvrtcGetErrorString", api.GetErrorString);
  need("nvrtcCreateProgram", api.CreateProgram);
  need("nvrtcDestroyProgram", api.DestroyProgram);
  need("nvrtcCompileProgram", api.CompileProgram);
  need("nvrtcGetProgramLogSize", api.GetProgramLogSize);
  need("nvrtcGetProgramLog", api.GetProgramLog);
  need("nvrtcGetPTXSize", api.GetPTXSize);
  need("nvrtcGetPTX", api.GetPTX);
  need("nvrtcGetCUBINSize", api.GetCUBINSize);
  need("nvrtcGetCUBIN", api.GetCUBIN);
  Resolve(library, "nvrtcSetFlowCallback", api.SetFlowCallback);
  return missing;
}

/// Loads the builtins of `library` before NVRTC does so itself, by a name without a folder, and
/// finds which file that name resolves to. The file beside NVRTC is tried first; but if the process
/// has already loaded one of this name, NVRTC uses that one, and so does the identity.
Status LoadBuiltins(NvrtcLibrary& library) {
  const std::string name = "libnvrtc-builtins.so." + library.identity.version;
  const std::size_t slash = library.path.rfind('/');
  const std::string beside =
      slash == std::string::npos ? name : library.path.substr(0, slash + 1) + name;
  Handle loaded(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!loaded) {
    Handle ours(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
    Handle anywhere(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!anywhere) {
      return Fail(ErrorCode::kUnavailable,
                  Format("{} is NVRTC {}, but its {} cannot be loaded, neither from beside it ({}) "
                         "nor from the loader's path",
                         library.path, library.identity.version, name, ours.error()));
    }
    anywhere.Keep();
    ours.Keep();
  }
  Handle used(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!used) return Fail(ErrorCode::kUnavailable, used.error());
  Result<LoadedLibrary> builtins = DescribeLibrary(used.get());
  if (!builtins) return Fail(builtins.error());
  used.Keep();
  library.builtins_path = std::move(builtins->path);
  library.identity.builtins_version = library.identity.version;
  library.identity.builtins_build_id = std::move(builtins->build_id);
  return {};
}

Result<NvrtcLibrary> Describe(void* handle) {
  NvrtcLibrary library;
  Result<LoadedLibrary> loaded = DescribeLibrary(handle);
  if (!loaded) return Fail(loaded.error());
  library.path = loaded->path;
  if (const char* missing = ResolveAll(handle, library.api)) {
    return Fail(ErrorCode::kUnavailable, Format("{} is not NVRTC {}.{} or newer: it lacks {}",
                                                library.path, kOldestMajor, kOldestMinor, missing));
  }
  int major = 0, minor = 0;
  if (const int result = library.api.Version(&major, &minor); result != kNvrtcSuccess) {
    return Fail(ErrorCode::kUnavailable,
                Format("{}: nvrtcVersion failed with code {}", library.path, result));
  }
  if (major < kOldestMajor || (major == kOldestMajor && minor < kOldestMinor)) {
    return Fail(ErrorCode::kUnavailable,
                Format("{} is NVRTC {}.{}: {}.{} or newer is needed", library.path, major, minor,
                       kOldestMajor, kOldestMinor));
  }
  library.identity.backend = "nvrtc";
  library.identity.version = Format("{}.{}", major, minor);
  library.identity.build_id = std::move(loaded->build_id);
  if (const Status builtins = LoadBuiltins(library); !builtins) return Fail(builtins.error());
  return library;
}

}  // namespace

Result<const NvrtcLibrary*> OpenNvrtcFile(const std::string& file) {
  static std::mutex mutex;
  // By handle, of which the loader has one a file. Never freed: statics may compile at exit.
  static auto& known = *new std::map<void*, std::unique_ptr<const NvrtcLibrary>>();
  const std::lock_guard lock(mutex);
  Handle handle(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return Fail(ErrorCode::kUnavailable, handle.error());
  if (const auto found = known.find(handle.get()); found != known.end()) return found->second.get();
  Result<NvrtcLibrary> library = Describe(handle.get());
  if (!library) return Fail(library.error());
  const auto kept =
      known.emplace(handle.get(), std::make_unique<const NvrtcLibrary>(std::move(*library))).first;
  handle.Keep();
  return kept->second.get();
}

Result<const NvrtcLibrary*> FindNvrtc(const NvrtcSearch& search,
                                      const NvrtcSurroundings& surroundings) {
  std::string looked;
  for (const NvrtcPlace& place : NvrtcPlaces(search, surroundings)) {
    std::string why = place.nothing;
    for (const std::string& file : place.files) {
      Result<const NvrtcLibrary*> library = OpenNvrtcFile(file);
      if (library) return library;
      why += (why.empty() ? "" : "; ") + library.error().message;
    }
    if (place.given) {
      return Fail(ErrorCode::kUnavailable,
                  Format("{} does not lead to NVRTC: {}", place.name, why));
    }
    looked += Format("\n  {}: {}", place.name, why);
  }
  return Fail(ErrorCode::kUnavailable,
              Format("NVRTC {}.{} or newer was not found. Looked at:{}\nInstall a CUDA toolkit or "
                     "the Python package nvidia-cuda-nvrtc, or set TILEWRIGHT_NVRTC to "
                     "libnvrtc.so or its folder",
                     kOldestMajor, kOldestMinor, looked));
}

}  // namespace tilewright::cuda
