// Where a bundle lies that nobody named.

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "api/open_device.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

/// The folder of the file that this function is in: a shared library, or the program.
fs::path FolderOfLibrary() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&InstalledBundle), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const fs::path file = fs::canonical(info.dli_fname, error);
  return error ? fs::path() : file.parent_path();
}

fs::path FolderOfProgram() {
  std::error_code error;
  const fs::path file = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : file.parent_path();
}

}  // namespace

std::string InstalledBundle() {
  // Beside the program in a build folder; in share/ of the prefix whose bin/, lib/ or
  // lib/x86_64-linux-gnu/ holds the file.
  constexpr std::array kPlaces = {"tilewright.twb", "../share/tilewright/tilewright.twb",
                                  "../../share/tilewright/tilewright.twb"};
  for (const fs::path& folder : {FolderOfLibrary(), FolderOfProgram()}) {
    if (folder.empty()) continue;
    for (const char* place : kPlaces) {
      std::error_code error;
      const fs::path file = folder / place;
      if (fs::is_regular_file(file, error) && !error) return file.lexically_normal().string();
    }
  }
  return "";
}

}  // namespace tilewright
