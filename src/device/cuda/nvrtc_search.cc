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
#include "device/cuda/nvrtc_library.h"

// The places of the search list. Nothing is loaded here.

namespace tilewright::cuda {
namespace {

namespace fs = std::filesystem;

/// Names asked of the loader, newest first; those above 13 do not exist yet.
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
std::vector<std::string> LibrariesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& name : Versions(folder, "libnvrtc.so")) {
    if (name.find_first_not_of("0123456789.", std::strlen("libnvrtc.so")) == std::string::npos)
      files.push_back(folder + "/" + name);
  }
  return files;
}

NvrtcPlace Given(std::string name, const std::string& path) {
  NvrtcPlace place{.name = std::move(name), .given = true, .files = {}, .nothing = {}};
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    place.nothing =
        Format("{}: {}", path, std::error_code(errno, std::generic_category()).message());
  } else if (S_ISDIR(status.st_mode)) {
    place.files = LibrariesIn(path);
    if (place.files.empty()) place.nothing = Format("the folder {} holds no libnvrtc.so.*", path);
  } else {
    // Absolute, so that the loader takes it for a file and not for a name to search.
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error);
    place.files.push_back(error ? path : absolute.string());
  }
  return place;
}

NvrtcPlace Folder(const std::string& folder) {
  NvrtcPlace place{.name = folder, .given = false, .files = LibrariesIn(folder), .nothing = {}};
  std::error_code error;
  if (place.files.empty())
    place.nothing = fs::is_directory(folder, error) ? "holds no libnvrtc.so.*" : "no such folder";
  return place;
}

/// $CUDA_HOME and the like: its lib64, else its lib.
NvrtcPlace Toolkit(const char* variable, const std::optional<std::string>& home) {
  NvrtcPlace place{
      .name = Format("${}", variable), .given = false, .files = {}, .nothing = "not set"};
  if (!home) return place;
  place.nothing.clear();
  for (const char* lib : {"/lib64", "/lib"}) {
    place.files = LibrariesIn(*home + lib);
    if (!place.files.empty()) return place;
  }
  place.nothing = Format("{}/lib64 holds no libnvrtc.so.*", *home);
  return place;
}

/// Folders in which Python installations keep packages.
std::vector<std::string> PackageFolders(const NvrtcSurroundings& surroundings) {
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

NvrtcPlace Wheels(const NvrtcSurroundings& surroundings) {
  NvrtcPlace place{
      .name = "Python packages nvidia-cuda-nvrtc*", .given = false, .files = {}, .nothing = {}};
  const std::vector<std::string> folders = PackageFolders(surroundings);
  for (const std::string& folder : folders) {
    // nvidia/cu13/lib (nvidia-cuda-nvrtc) and nvidia/cuda_nvrtc/lib (nvidia-cuda-nvrtc-cu12).
    for (const std::string& package : Versions(folder + "/nvidia", "cu")) {
      for (std::string& file : LibrariesIn(folder + "/nvidia/" + package + "/lib"))
        place.files.push_back(std::move(file));
    }
  }
  if (place.files.empty())
    place.nothing = Format("none in {} folders of Python packages", folders.size());
  return place;
}

}  // namespace

NvrtcSurroundings NvrtcSurroundings::OfThisProcess() {
  return {.env = GetEnv, .root = {}, .loader_path = true};
}

std::vector<NvrtcPlace> NvrtcPlaces(const NvrtcSearch& search,
                                    const NvrtcSurroundings& surroundings) {
  std::vector<NvrtcPlace> places;
  if (!search.path.empty()) {
    places.push_back(Given("the given path", search.path));
    return places;
  }
  if (const auto file = surroundings.env("TILEWRIGHT_NVRTC")) {
    places.push_back(Given("$TILEWRIGHT_NVRTC", *file));
    return places;
  }
  places.push_back(
      {.name = "$TILEWRIGHT_NVRTC", .given = false, .files = {}, .nothing = "not set"});
  if (surroundings.loader_path) {
    places.push_back({.name = "the loader's path",
                      .given = false,
                      .files = {std::begin(kLoaderNames), std::end(kLoaderNames)},
                      .nothing = {}});
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    places.push_back(Toolkit(variable, surroundings.env(variable)));
  const std::string local = surroundings.root + "/usr/local";
  places.push_back(Folder(local + "/cuda/lib64"));
  for (const std::string& toolkit : Versions(local, "cuda-"))
    places.push_back(Folder(local + "/" + toolkit + "/lib64"));
  places.push_back(Wheels(surroundings));
  return places;
}

}  // namespace tilewright::cuda
