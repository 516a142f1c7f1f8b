#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/library_search.h"
#include "tilewright/compiler.h"
#include "tilewright/result.h"

namespace tilewright::cuda {

using NvrtcProgram = struct NvrtcProgramOpaque*;

/// Results of NVRTC's functions, as its documentation numbers them.
enum NvrtcResult : int {
  kNvrtcSuccess = 0,
  kNvrtcOutOfMemory = 1,
  kNvrtcProgramCreationFailure = 2,
  kNvrtcInvalidInput = 3,
  kNvrtcInvalidProgram = 4,
  kNvrtcInvalidOption = 5,
  kNvrtcCompilation = 6,
  kNvrtcBuiltinOperationFailure = 7,
  kNvrtcCancelled = 16,
  kNvrtcBusy = 18,
};

/// The functions of NVRTC that are used, declared here so that no toolkit is needed to build.
struct NvrtcApi {
  int (*Version)(int* major, int* minor) = nullptr;
  const char* (*GetErrorString)(int result) = nullptr;
  int (*CreateProgram)(NvrtcProgram*, const char* source, const char* name, int headers,
                       const char* const* header_texts, const char* const* header_names) = nullptr;
  int (*DestroyProgram)(NvrtcProgram*) = nullptr;
  int (*CompileProgram)(NvrtcProgram, int options, const char* const*) = nullptr;
  int (*GetProgramLogSize)(NvrtcProgram, std::size_t*) = nullptr;
  int (*GetProgramLog)(NvrtcProgram, char*) = nullptr;
  int (*GetPTXSize)(NvrtcProgram, std::size_t*) = nullptr;
  int (*GetPTX)(NvrtcProgram, char*) = nullptr;
  int (*GetCUBINSize)(NvrtcProgram, std::size_t*) = nullptr;
  int (*GetCUBIN)(NvrtcProgram, char*) = nullptr;
  int (*SetFlowCallback)(NvrtcProgram, int (*)(void*, void*), void*) = nullptr;  ///< may be null
};

/// A loaded NVRTC with the builtins library that it will use. Never unloaded: it keeps threads and
/// thread-local state.
struct NvrtcLibrary {
  NvrtcApi api;
  CompilerIdentity identity;
  std::string path, builtins_path;  ///< for messages; in no key
};

/// Loads one file, or one name on the loader's path. The second load of a file, by whatever name,
/// returns the same object. Errors: kUnavailable with the reason ("lacks nvrtcGetCUBIN").
Result<const NvrtcLibrary*> OpenNvrtcFile(const std::string& file);

using NvrtcSurroundings = LibrarySurroundings;
using NvrtcPlace = LibraryPlace;

/// The first place that works. Errors as LoadNvrtc.
Result<const NvrtcLibrary*> FindNvrtc(const NvrtcSearch& search,
                                      const NvrtcSurroundings& surroundings);

}  // namespace tilewright::cuda
