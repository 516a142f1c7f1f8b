// Where the program of the worker lies.

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/env.h"
#include "core/text.h"
#include "worker/process.h"

namespace tilewright::worker {
namespace {

namespace fs = std::filesystem;

bool IsProgram(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) && !error && access(file.c_str(), X_OK) == 0;
}

/// The folder of the file that this function is in: a shared library, or the program.
fs::path FolderOfLibrary() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&FindWorker), &info) == 0 || info.dli_fname == nullptr)
    return {};
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

Result<std::string> FindWorker(const std::string& program) {
  std::string named = program;
  if (named.empty()) named = GetEnv("TILEWRIGHT_WORKER").value_or("");
  if (!named.empty()) {
    if (IsProgram(named)) return named;
    return Fail(ErrorCode::kUnavailable,
                Format("the worker {} is not a program that can be run", Printable(named)));
  }
  // Beside the program in a build folder; in libexec/ of the prefix whose bin/, lib/ or
  // lib/x86_64-linux-gnu/ holds the file; in the build folder of the command, beside src/.
  constexpr std::array kPlaces = {"tilewright-worker", "../libexec/tilewright/tilewright-worker",
                                  "../../libexec/tilewright/tilewright-worker",
                                  "../cli/tilewright-worker"};
  std::string tried;
  std::vector<fs::path> folders = {FolderOfLibrary()};
  if (fs::path program_folder = FolderOfProgram(); program_folder != folders[0])
    folders.push_back(std::move(program_folder));
  for (const fs::path& folder : folders) {
    if (folder.empty()) continue;
    for (const char* place : kPlaces) {
      const fs::path file = (folder / place).lexically_normal();
      if (IsProgram(file)) return file.string();
    }
    tried.append(tried.empty() ? "" : ", ").append(folder.string());
  }
  return Fail(ErrorCode::kUnavailable,
              Format("no tilewright-worker beside {}, nor in libexec/tilewright of their prefix; "
                     "TILEWRIGHT_WORKER can name it",
                     Printable(tried, 400)));
}

}  // namespace tilewright::worker
