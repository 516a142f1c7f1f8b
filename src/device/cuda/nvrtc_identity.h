#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright::cuda {

/// The GNU build id among the notes of a PT_NOTE segment, in lower-case hex; empty where there is
/// none or the bytes are not notes. `alignment` is the segment's: 8 for a few, else 4. Total:
/// whatever the bytes, nothing outside them is read.
std::string BuildIdOfNotes(std::string_view notes, std::size_t alignment);

/// A loaded library, as the loader knows it.
struct LoadedLibrary {
  std::string path;      ///< its file, as the loader found it
  std::string build_id;  ///< hex, from its notes in memory; else "sha256:" and the file's digest
};

/// Of a handle from dlopen. The build id is that of the code in memory, whatever the file is by
/// now. kIo where there is no note and the file cannot be read.
Result<LoadedLibrary> DescribeLibrary(void* handle);

}  // namespace tilewright::cuda
