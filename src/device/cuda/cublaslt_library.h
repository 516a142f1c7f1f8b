#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/library_search.h"
#include "tilewright/result.h"

namespace tilewright::cuda {

// What is used of NVIDIA's cuBLASLt, declared here so that no toolkit is needed to build. The
// layouts and numbers are those of cublasLt.h since CUDA 12; a test compares them with the header
// where there is one.

/// cublasLtMatrixLayoutOpaque_t: a matrix as the library sees it, column-major.
struct CublasLtLayout {
  std::uint64_t data[8];
};
/// cublasLtMatmulAlgo_t: opaque, of one version of the library.
struct CublasLtAlgo {
  std::uint64_t data[8];
};
/// cublasLtMatmulHeuristicResult_t.
struct CublasLtHeuristic {
  CublasLtAlgo algo;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

enum CublasLtNumber : int {
  kCublasSuccess = 0,
  kCublasOpN = 0,
  kCublasOpT = 1,
  kCublasTypeF32 = 0,
  kCublasTypeF16 = 2,
  kCublasTypeBF16 = 14,
  kCublasComputeF32 = 68,
  kCublasLtDescTransA = 3,
  kCublasLtDescTransB = 4,
  kCublasLtPreferMaxWorkspace = 1,
  kCublasLtPreferReductions = 3,
  kCublasLtPreferAlignA = 5,
  kCublasLtPreferAlignB = 6,
  kCublasLtPreferAlignC = 7,
  kCublasLtPreferAlignD = 8,
  kCublasLtReduceInF32 = 2,
};

/// Statuses are cublasStatus_t; handles, operation descriptors and preferences are opaque pointers.
struct CublasLtApi {
  std::size_t (*GetVersion)() = nullptr;
  const char* (*GetStatusName)(int) = nullptr;
  int (*Create)(void** handle) = nullptr;
  int (*Destroy)(void* handle) = nullptr;
  int (*DescCreate)(void** desc, int compute_type, int scale_type) = nullptr;
  int (*DescDestroy)(void* desc) = nullptr;
  int (*DescSet)(void* desc, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*LayoutInit)(CublasLtLayout*, std::size_t bytes, int type, std::uint64_t rows,
                    std::uint64_t cols, std::int64_t ld) = nullptr;
  int (*PreferenceCreate)(void** preference) = nullptr;
  int (*PreferenceDestroy)(void* preference) = nullptr;
  int (*PreferenceSet)(void* preference, int attribute, const void* value,
                       std::size_t bytes) = nullptr;
  int (*Heuristic)(void* handle, void* desc, const CublasLtLayout* a, const CublasLtLayout* b,
                   const CublasLtLayout* c, const CublasLtLayout* d, void* preference,
                   int requested, CublasLtHeuristic* results, int* found) = nullptr;
  int (*Matmul)(void* handle, void* desc, const void* alpha, const void* a, const CublasLtLayout*,
                const void* b, const CublasLtLayout*, const void* beta, const void* c,
                const CublasLtLayout*, void* d, const CublasLtLayout*, const CublasLtAlgo*,
                void* workspace, std::size_t workspace_bytes, void* stream) = nullptr;
};

/// Which cuBLASLt this machine has. Found by looking at files; nothing is loaded.
struct CublasLtFile {
  std::string path;  ///< "" where there is none
  /// "cublaslt-13-0123456789abcdef": major version, digest of size and first bytes of the file.
  std::string identity;
  int major = 0;        ///< 13 of libcublasLt.so.13; 0 where the name does not tell
  std::string why_not;  ///< where there is none: every place looked at
};
/// The newest of the first place that has one (CublasLtPlaces).
CublasLtFile FindCublasLt(
    const LibrarySurroundings& surroundings = LibrarySurroundings::OfThisProcess());

/// A loaded cuBLASLt. Never unloaded: it keeps threads and state of the driver.
struct CublasLtLibrary {
  CublasLtApi api;
  std::string path;
  std::string version;  ///< "13.1.0"

  /// Success, or kInternal (kOutOfMemory, kUnsupported) "cuBLASLt 13.1.0: `call`: NAME (number)".
  Status Check(int status, const char* call) const;
};
/// Loads the file; once a process. kUnavailable with the loader's words, or the missing function.
Result<const CublasLtLibrary*> OpenCublasLt(const std::string& path);

/// Owns an object of the library: a handle, an operation descriptor, a preference.
using CublasLtObject = std::unique_ptr<void, int (*)(void*)>;

}  // namespace tilewright::cuda
