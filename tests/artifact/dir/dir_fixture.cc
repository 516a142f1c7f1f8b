#include "dir_fixture.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "artifact/build.h"
#include "core/random.h"

namespace tilewright::test {
namespace {

constexpr SourceFile kFiles[] = {{"test/unit.cu", "#include \"spec.cuh\"\n"}};

KernelFamilies Families() {
  KernelFamily family;
  family.name = "dir_test";
  family.source = kFiles[0].name;
  family.files = kFiles;
  family.check = [](const KernelSpec&) -> std::optional<Rejection> { return std::nullopt; };
  family.launch = [](const KernelSpec&) { return KernelLaunchShape{}; };
  family.limits = [](const KernelSpec&) { return ResourceLimits{}; };
  family.catalog = [](CudaArch) { return std::vector<KernelSpec>{}; };
  KernelFamilies families;
  if (const Status added = families.Add(family); !added) ADD_FAILURE() << added.error().message;
  return families;
}

struct Maker {
  KernelFamilies families = Families();
  Result<KernelSources> sources = KernelSources::Make(families);
  CompilerIdentity compiler{"nvrtc", "13.0", "0123456789abcdef", "13.0", "fedcba9876543210"};
};

}  // namespace

TempFolder::TempFolder(Place place) {
  const char* base = std::getenv("TMPDIR");
  if (base == nullptr) base = "/tmp";
  if (place == Place::kMemory && access("/dev/shm", W_OK) == 0) base = "/dev/shm";
  path_ = std::string(base) + "/tilewright-dir-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no temporary folder " << path_;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

namespace {

Entry NewTestEntry(int number, std::size_t cubin_bytes) {
  static const Maker kMaker;
  KernelSpec spec;
  spec.family = "dir_test";
  spec.arch = {90, 'a'};
  spec.params[0] = number;
  const auto input = PrepareCompile(spec, *kMaker.families.Find(spec.family), *kMaker.sources);
  if (!input) {
    ADD_FAILURE() << input.error().message;
    return {};
  }
  CompileOutput output;
  output.cubin.resize(cubin_bytes);
  Random random(static_cast<std::uint64_t>(number) + 1);
  for (char& byte : output.cubin) byte = static_cast<char>(random.Next());
  output.ptx = "// ptx";
  output.resources.registers = 32;
  output.resources.spill_store_bytes = output.resources.spill_load_bytes = 0;
  output.compile_ms = 100;
  auto bytes = MakeEntry(*input, kMaker.compiler, output);
  if (!bytes) {
    ADD_FAILURE() << bytes.error().message;
    return {};
  }
  const auto data = DecodeArtifact(*bytes);
  if (!data) {
    ADD_FAILURE() << data.error().message;
    return {};
  }
  return {data->action, std::move(*bytes)};
}

}  // namespace

Entry MakeTestEntry(int number, std::size_t cubin_bytes) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::size_t>, Entry> made;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = made.try_emplace({number, cubin_bytes});
  if (is_new) at->second = NewTestEntry(number, cubin_bytes);
  return at->second;
}

std::string EntryPath(const std::string& root, const ArtifactKey& action) {
  const std::string hex = action.Hex();
  return root + "/v1/entries/" + hex.substr(0, 2) + "/" + hex.substr(2) + ".twk";
}

std::string NegativePath(const std::string& root, const ArtifactKey& action) {
  const std::string hex = action.Hex();
  return root + "/v1/neg/" + hex.substr(0, 2) + "/" + hex.substr(2) + ".twn";
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void WriteText(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

void SetStamp(const std::string& path, std::int64_t unix_s) {
  struct timespec times[2] = {};
  times[0].tv_sec = times[1].tv_sec = static_cast<time_t>(unix_s);
  if (utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) ADD_FAILURE() << "utimensat " << path;
}

std::int64_t StampOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mtim.tv_sec : -1;
}

int OpenDescriptors() { return static_cast<int>(NamesIn("/proc/self/fd").size()); }

pid_t StartChild(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  int code = 1;
  try {
    work();
    code = testing::Test::HasFailure() ? 1 : 0;
  } catch (...) {
  }
  _exit(code);
}

int WaitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

int InChild(const std::function<void()>& work) { return WaitFor(StartChild(work)); }
bool WasKilled(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
bool EndedWell(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

std::string Look(StoreDir& dir, const Entry& entry) {
  const StoreDir::Lookup lookup = dir.Find(entry.action);
  if (!lookup.found) {
    return lookup.miss == MissReason::kAbsent    ? "absent " + lookup.detail
           : lookup.miss == MissReason::kCorrupt ? "corrupt " + lookup.detail
                                                 : "incompatible " + lookup.detail;
  }
  return lookup.found->data.action == entry.action && lookup.found->bytes.view() == entry.bytes
             ? "hit"
             : "other bytes";
}

}  // namespace tilewright::test
