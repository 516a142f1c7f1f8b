#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tilewright/compiler.h"

namespace tilewright::cuda {

/// What the search for a library of the toolkit sees of its machine; tests give another one.
struct LibrarySurroundings {
  std::function<std::optional<std::string>(const char* variable)> env;
  std::string root;         ///< before every absolute place of the list
  bool loader_path = true;  ///< whether names without a folder may be asked for
  static LibrarySurroundings OfThisProcess();
};

/// A place of the search: files to try, best first, or why there is none.
struct LibraryPlace {
  std::string name;    ///< "$TILEWRIGHT_NVRTC", "/usr/local/cuda-13.0/lib64"
  bool given = false;  ///< named by the caller: must be the library
  std::vector<std::string> files;
  std::string nothing;  ///< "not set", "no such folder"; where `files` is empty
};

/// The places of NVRTC in the order they are asked, as LoadNvrtc documents them. Reads folders.
std::vector<LibraryPlace> NvrtcPlaces(const NvrtcSearch& search,
                                      const LibrarySurroundings& surroundings);

/// The places of cuBLASLt: $TILEWRIGHT_CUBLASLT alone if set; else the folders of $LD_LIBRARY_PATH,
/// those of the system's libraries, and toolkits and Python packages as for NVRTC. Files only, no
/// name for the loader to resolve: which one will be loaded is known before it is. Reads folders.
std::vector<LibraryPlace> CublasLtPlaces(const LibrarySurroundings& surroundings);

}  // namespace tilewright::cuda
