#include "device/cuda/cublaslt_library.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "core/sha256.h"
#include "core/text.h"

namespace tilewright::cuda {
namespace {

constexpr int kOldestMajor = 12;
constexpr std::size_t kIdentityBytes = 64 << 10;  // file header, build id, symbols
constexpr std::size_t kIdentityDigits = 16;

/// 13 of "/usr/lib/libcublasLt.so.13.1.0"; 0 where no number follows.
int MajorOf(const std::string& path) {
  constexpr std::string_view kName = "libcublasLt.so.";
  const std::size_t at = path.rfind(kName);
  return at == std::string::npos ? 0 : std::atoi(path.c_str() + at + kName.size());
}

/// Digest of a file's size and first bytes; "" where it cannot be read. The whole of it, 500 MB,
/// would take a second.
std::string DigestOf(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  struct stat info {};
  if (file == nullptr || fstat(fileno(file.get()), &info) != 0) return "";
  std::string head(kIdentityBytes, '\0');
  head.resize(std::fread(head.data(), 1, head.size(), file.get()));
  head += Format("{}", info.st_size);
  const Result<std::string> digest = Sha256Hex(head);
  return digest ? digest->substr(0, kIdentityDigits) : "";
}

/// The first needed function that the library lacks, or nullptr.
const char* Resolve(void* library, CublasLtApi& api) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  need("cublasLtGetVersion", api.GetVersion);
  need("cublasLtGetStatusName", api.GetStatusName);
  need("cublasLtCreate", api.Create);
  need("cublasLtDestroy", api.Destroy);
  need("cublasLtMatmulDescCreate", api.DescCreate);
  need("cublasLtMatmulDescDestroy", api.DescDestroy);
  need("cublasLtMatmulDescSetAttribute", api.DescSet);
  need("cublasLtMatrixLayoutInit_internal", api.LayoutInit);
  need("cublasLtMatmulPreferenceCreate", api.PreferenceCreate);
  need("cublasLtMatmulPreferenceDestroy", api.PreferenceDestroy);
  need("cublasLtMatmulPreferenceSetAttribute", api.PreferenceSet);
  need("cublasLtMatmulAlgoGetHeuristic", api.Heuristic);
  need("cublasLtMatmul", api.Matmul);
  return missing;
}

Result<const CublasLtLibrary*> LoadFile(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* words = dlerror();
    return Fail(ErrorCode::kUnavailable,
                Format("cuBLASLt: {}", words != nullptr ? words : "dlopen failed"));
  }
  auto loaded = std::make_unique<CublasLtLibrary>();
  if (const char* missing = Resolve(library, loaded->api)) {
    return Fail(ErrorCode::kUnavailable, Format("cuBLASLt: {} lacks {}", path, missing));
  }
  const std::size_t version = loaded->api.GetVersion();
  loaded->path = path;
  loaded->version = Format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return loaded.release();
}

}  // namespace

CublasLtFile FindCublasLt(const LibrarySurroundings& surroundings) {
  CublasLtFile found;
  for (const LibraryPlace& place : CublasLtPlaces(surroundings)) {
    for (const std::string& file : place.files) {
      std::error_code error;
      const std::string real = std::filesystem::canonical(file, error).string();
      const std::string digest = error ? "" : DigestOf(real);
      const int major = MajorOf(real) != 0 ? MajorOf(real) : MajorOf(file);
      if (digest.empty() || (major != 0 && major < kOldestMajor)) continue;
      return {.path = real,
              .identity = Format("cublaslt-{}-{}", major, digest),
              .major = major,
              .why_not = {}};
    }
    found.why_not += Format(
        "{}{}: {}", found.why_not.empty() ? "" : "; ", place.name,
        place.files.empty() ? place.nothing
                            : Format("none of CUDA {} or newer that can be read", kOldestMajor));
  }
  return found;
}

Result<const CublasLtLibrary*> OpenCublasLt(const std::string& path) {
  static std::mutex mutex;
  // Never freed: plans may be released by other statics at exit.
  static auto& loaded = *new std::map<std::string, Result<const CublasLtLibrary*>>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = loaded.find(path);
  if (known != loaded.end()) return known->second;
  return loaded.emplace(path, LoadFile(path)).first->second;
}

Status CublasLtLibrary::Check(int status, const char* call) const {
  if (status == kCublasSuccess) return {};
  constexpr int kAllocFailed = 3, kNotSupported = 15;
  const char* name = api.GetStatusName(status);
  const ErrorCode code = status == kAllocFailed    ? ErrorCode::kOutOfMemory
                         : status == kNotSupported ? ErrorCode::kUnsupported
                                                   : ErrorCode::kInternal;
  return Fail(code, Format("cuBLASLt {}: {}: {} ({})", version, call,
                           name != nullptr ? name : "unknown status", status));
}

}  // namespace tilewright::cuda
