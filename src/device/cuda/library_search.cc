#include "device/cuda/library_search.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/env.h"
#include "core/text.h"

// The places of the search list. Nothing is loaded here.

namespace tilewright::cuda {
namespace {

namespace fs = std::filesystem;

/// What distinguishes the searches for two libraries.
struct Names {
  const char* file;      ///< "libnvrtc.so", which a version may follow
  const char* variable;  ///< of the environment: the file, or its folder
  const char* packages;  ///< Python packages that contain it
};
constexpr Names kNvrtc{"libnvrtc.so", "TILEWRIGHT_NVRTC", "nvidia-cuda-nvrtc*"};
constexpr Names kCublasLt{"libcublasLt.so", "TILEWRIGHT_CUBLASLT", "nvidia-cublas*"};

/// NVRTC's names asked of the loader, newest first; those above 13 do not exist yet.
constexpr const char* kLoaderNames[] = {"libnvrtc.so.15", "libnvrtc.so.14", "libnvrtc.so.13",
                                        "libnvrtc.so.12"};

/// Names in a folder; empty where it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The numbers in "13.0", "cuda-13.0", "python3.11": for comparing versions.
std::vector<int> NumbersOf(const std::string& text) {
  std::vector<int> numbers;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < '0' || text[i] > '9') continue;
    numbers.push_back(std::atoi(text.c_str() + i));
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
  }
  return numbers;
}

/// Entries of `folder` whose names start with `prefix`, newest version first.
std::vector<std::string> Versions(const std::string& folder, const std::string& prefix) {
  std::vector<std::string> names = NamesIn(folder);
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(prefix); });
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return NumbersOf(a) > NumbersOf(b);
  });
  return names;
}

/// Files "libnvrtc.so.N" of a folder, newest first, then "libnvrtc.so".
std::vector<std::string> LibrariesIn(const Names& names, const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& name : Versions(folder, names.file)) {
    if (name.find_first_not_of("0123456789.", std::strlen(names.file)) == std::string::npos)
      files.push_back(folder + "/" + name);
  }
  return files;
}

LibraryPlace Given(const Names& names, std::string name, const std::string& path) {
  LibraryPlace place{.name = std::move(name), .given = true, .files = {}, .nothing = {}};
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    place.nothing =
        Format("{}: {}", path, std::error_code(errno, std::generic_category()).message());
  } else if (S_ISDIR(status.st_mode)) {
    place.files = LibrariesIn(names, path);
    if (place.files.empty())
      place.nothing = Format("the folder {} holds no {}.*", path, names.file);
  } else {
    // Absolute, so that the loader takes it for a file and not for a name to search.
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error);
    place.files.push_back(error ? path : absolute.string());
  }
  return place;
}

LibraryPlace Folder(const Names& names, const std::string& folder) {
  LibraryPlace place{
      .name = folder, .given = false, .files = LibrariesIn(names, folder), .nothing = {}};
  std::error_code error;
  if (place.files.empty())
    place.nothing =
        fs::is_directory(folder, error) ? Format("holds no {}.*", names.file) : "no such folder";
  return place;
}

/// $CUDA_HOME and the like: its lib64, else its lib.
LibraryPlace Toolkit(const Names& names, const char* variable,
                     const std::optional<std::string>& home) {
  LibraryPlace place{
      .name = Format("${}", variable), .given = false, .files = {}, .nothing = "not set"};
  if (!home) return place;
  place.nothing.clear();
  for (const char* lib : {"/lib64", "/lib"}) {
    place.files = LibrariesIn(names, *home + lib);
    if (!place.files.empty()) return place;
  }
  place.nothing = Format("{}/lib64 holds no {}.*", *home, names.file);
  return place;
}

/// Folders in which Python installations keep packages.
std::vector<std::string> PackageFolders(const LibrarySurroundings& surroundings) {
  std::vector<std::string> prefixes;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto value = surroundings.env(variable)) prefixes.push_back(*value);
  if (const auto home = surroundings.env("HOME")) prefixes.push_back(*home + "/.local");
  prefixes.push_back(surroundings.root + "/usr/local");
  prefixes.push_back(surroundings.root + "/usr");
  std::vector<std::string> folders;
  for (const std::string& prefix : prefixes) {
    for (const std::string& python : Versions(prefix + "/lib", "python3")) {
      for (const char* kind : {"site-packages", "dist-packages"})
        folders.push_back(prefix + "/lib/" + python + "/" + kind);
    }
  }
  return folders;
}

LibraryPlace Wheels(const Names& names, const LibrarySurroundings& surroundings) {
  LibraryPlace place{.name = Format("Python packages {}", names.packages),
                     .given = false,
                     .files = {},
                     .nothing = {}};
  const std::vector<std::string> folders = PackageFolders(surroundings);
  for (const std::string& folder : folders) {
    // nvidia/cu13/lib (nvidia-cuda-nvrtc), nvidia/cuda_nvrtc/lib (nvidia-cuda-nvrtc-cu12) and
    // nvidia/cublas/lib (nvidia-cublas-cu12).
    for (const std::string& package : Versions(folder + "/nvidia", "cu")) {
      for (std::string& file : LibrariesIn(names, folder + "/nvidia/" + package + "/lib"))
        place.files.push_back(std::move(file));
    }
  }
  if (place.files.empty())
    place.nothing = Format("none in {} folders of Python packages", folders.size());
  return place;
}

/// Adds what $TILEWRIGHT_... says; whether that is the only place.
bool AddVariable(const Names& names, const LibrarySurroundings& surroundings,
                 std::vector<LibraryPlace>& places) {
  const std::string name = Format("${}", names.variable);
  const auto file = surroundings.env(names.variable);
  if (file) {
    places.push_back(Given(names, name, *file));
  } else {
    places.push_back({.name = name, .given = false, .files = {}, .nothing = "not set"});
  }
  return file.has_value();
}

/// Adds toolkits, then Python packages.
void AddInstallations(const Names& names, const LibrarySurroundings& surroundings,
                      std::vector<LibraryPlace>& places) {
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    places.push_back(Toolkit(names, variable, surroundings.env(variable)));
  const std::string local = surroundings.root + "/usr/local";
  places.push_back(Folder(names, local + "/cuda/lib64"));
  for (const std::string& toolkit : Versions(local, "cuda-"))
    places.push_back(Folder(names, local + "/" + toolkit + "/lib64"));
  places.push_back(Wheels(names, surroundings));
}

}  // namespace

LibrarySurroundings LibrarySurroundings::OfThisProcess() {
  return {.env = GetEnv, .root = {}, .loader_path = true};
}

std::vector<LibraryPlace> NvrtcPlaces(const NvrtcSearch& search,
                                      const LibrarySurroundings& surroundings) {
  std::vector<LibraryPlace> places;
  if (!search.path.empty()) {
    places.push_back(Given(kNvrtc, "the given path", search.path));
    return places;
  }
  if (AddVariable(kNvrtc, surroundings, places)) return places;
  if (surroundings.loader_path) {
    places.push_back({.name = "the loader's path",
                      .given = false,
                      .files = {std::begin(kLoaderNames), std::end(kLoaderNames)},
                      .nothing = {}});
  }
  AddInstallations(kNvrtc, surroundings, places);
  return places;
}

std::vector<LibraryPlace> CublasLtPlaces(const LibrarySurroundings& surroundings) {
  std::vector<LibraryPlace> places;
  if (AddVariable(kCublasLt, surroundings, places)) return places;
  if (surroundings.loader_path) {
    std::string_view path = surroundings.env("LD_LIBRARY_PATH").value_or("");
    while (!path.empty()) {
      const std::string_view folder = path.substr(0, path.find(':'));
      if (!folder.empty()) places.push_back(Folder(kCublasLt, std::string(folder)));
      path.remove_prefix(std::min(folder.size() + 1, path.size()));
    }
  }
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64", "/usr/local/lib"}) {
    places.push_back(Folder(kCublasLt, surroundings.root + folder));
  }
  AddInstallations(kCublasLt, surroundings, places);
  return places;
}

}  // namespace tilewright::cuda
