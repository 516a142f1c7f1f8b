// tilewright_gpu_check: runs every kernel of the catalog on a GPU against float64.
//
// The kernels come from a bundle by a store in strict mode, so that the machine with the GPU needs
// no compiler; or, with --compile, from NVRTC. Each kernel runs in a process of its own: one that
// faults or hangs costs its own line. First all are checked, several processes at once, then those
// that passed are timed, one at a time.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/text.h"
#include "gpu/harness.h"
#include "gpu/report.h"
#include "gpu/runners.h"
#include "tilewright/artifact_store.h"

extern char** environ;

namespace tilewright::gpu_check {
namespace {

constexpr const char* kUsage = R"(usage: tilewright_gpu_check [BUNDLE.twb...] [options]
  --compile         compile what no bundle has (NVRTC); without it a kernel that is missing fails
  --store DIR       store to keep compiled kernels in (default: a folder that is removed)
  --only TEXT       only kernels whose name contains TEXT; may be repeated
  --no-time         check only
  --small           without large problems (for compute-sanitizer --target-processes all)
  --jobs N          kernels checked at the same time (default: a quarter of the cores, 1 to 8)
  --timeout S       seconds a kernel may take (default 180)
  --seed N          of the random inputs (default: fresh; the report has it)
  --device N        which GPU (default 0)
  --libcuda FILE    the driver's library (default: as the loader finds it)
  --peak-tflops X   dense bf16 rate that floors are counted with (default: by the GPU's name)
  --json FILE       write the report; FILE.md beside it
  --list            print the kernels of the catalog for the GPU and end
)";

struct Options {
  std::vector<std::string> bundles;
  std::vector<std::string> only;
  bool compile = false;
  bool time = true;
  bool list = false;
  bool small = false;
  std::string store;
  std::string libcuda;
  std::string json;
  std::vector<std::string> children;  ///< SpecNames: this process runs these kernels
  std::string phase;                  ///< of a child: check, time, device
  int jobs = 0;
  int timeout_s = 180;
  int device = 0;
  std::uint64_t seed = 0;
  double peak_tflops = 0;
  std::vector<std::string> words;  ///< the command line
};

[[noreturn]] void Usage(const std::string& trouble) {
  std::fprintf(stderr, "tilewright_gpu_check: %s\n%s", trouble.c_str(), kUsage);
  std::exit(2);
}

Options Parse(int argc, char** argv) {
  Options options;
  options.words.assign(argv, argv + argc);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) Usage(word + " needs a value");
      return argv[++i];
    };
    if (word == "--compile") {
      options.compile = true;
    } else if (word == "--no-time") {
      options.time = false;
    } else if (word == "--small") {
      options.small = true;
    } else if (word == "--list") {
      options.list = true;
    } else if (word == "--store") {
      options.store = value();
    } else if (word == "--only") {
      options.only.push_back(value());
    } else if (word == "--jobs") {
      options.jobs = std::atoi(value().c_str());
    } else if (word == "--timeout") {
      options.timeout_s = std::atoi(value().c_str());
    } else if (word == "--seed") {
      options.seed = std::strtoull(value().c_str(), nullptr, 0);
    } else if (word == "--device") {
      options.device = std::atoi(value().c_str());
    } else if (word == "--libcuda") {
      options.libcuda = value();
    } else if (word == "--peak-tflops") {
      options.peak_tflops = std::atof(value().c_str());
    } else if (word == "--json") {
      options.json = value();
    } else if (word == "--child") {
      options.children.push_back(value());
    } else if (word == "--phase") {
      options.phase = value();
    } else if (!word.empty() && word[0] == '-') {
      Usage("unknown option " + word);
    } else {
      options.bundles.push_back(word);
    }
  }
  if (options.bundles.empty() && !options.compile) Usage("neither a bundle nor --compile");
  return options;
}

/// A folder that is removed.
class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "tilewright-gpu-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw CheckError("no temporary folder: " + pattern);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::unique_ptr<ArtifactStore> OpenStore(const Options& options, const Gpu& gpu) {
  ArtifactStoreOptions store;
  store.root = options.store;
  store.bundles = options.bundles;
  store.mode = options.compile ? CacheMode::kNormal : CacheMode::kStrict;
  store.device.compute_capability = gpu.spec.compute_capability;
  store.device.driver = static_cast<std::uint32_t>(gpu.driver.version());
  return Must(ArtifactStore::Open(Must(CheckedFamilies(), "families"), store), "store");
}

/// Runs one kernel; false when no other one may follow in this process.
bool RunKernel(const Options& options, const Gpu& gpu, ArtifactStore& store,
               KernelOutcome& outcome) {
  try {
    const KernelSpec spec = Must(ParseSpecName(outcome.spec), "spec");
    const KernelHandle handle = Must(store.Compile(spec), "store");
    Describe(*handle, outcome);
    const LoadedKernel kernel(gpu, *handle);
    outcome.occupancy = kernel.occupancy();
    const Job job{
        gpu,          kernel, options.seed, options.phase == "check", options.phase == "time",
        options.small};
    const RunFamily run = FindRunner(spec.family.view());
    if (run == nullptr) throw CheckError(Format("no runner for family {}", spec.family.view()));
    run(job, outcome.report);
    Must(gpu.context.Synchronize(), "end");
    if (job.check && outcome.report.cases.empty()) throw CheckError("the runner checked nothing");
    return true;
  } catch (const std::exception& error) {
    outcome.trouble = error.what();
    return false;
  }
}

/// Runs kernels one after the other and prints a line of JSON for each, until one fails in a way
/// that may spoil the context. Whatever happened is in the lines, not in the exit code.
[[noreturn]] void RunChild(const Options& options) {
  const auto print = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  KernelOutcome outcome;
  try {
    const Gpu gpu(options.libcuda, options.device);
    if (options.phase == "device") {
      print(DeviceJson(gpu, MeasureCopyGbS(gpu)));
    } else {
      const std::unique_ptr<ArtifactStore> store = OpenStore(options, gpu);
      for (const std::string& name : options.children) {
        outcome = KernelOutcome();
        outcome.spec = name;
        const bool clean = RunKernel(options, gpu, *store, outcome);
        print(OutcomeJson(outcome));
        if (!clean) break;
      }
    }
  } catch (const std::exception& error) {
    outcome.trouble = error.what();
    print(OutcomeJson(outcome));
  }
  // After a fault in a kernel the driver's own exit handlers may hang.
  _exit(0);
}

/// A process that runs kernels, and what it printed.
struct Child {
  pid_t pid = -1;
  int fd = -1;
  std::vector<std::size_t> indices;  ///< of the kernels it was given
  std::size_t done = 0;              ///< of them, by lines
  std::string output;                ///< not yet a whole line
  std::chrono::steady_clock::time_point deadline;
};

/// The words that start this program again. Started through a loader, it is the loader that
/// /proc/self/exe names: the caller says what to run instead.
std::vector<std::string> SelfCommand() {
  const char* command = std::getenv("TILEWRIGHT_GPU_CHECK_COMMAND");
  if (command == nullptr) return {"/proc/self/exe"};
  std::vector<std::string> words;
  std::string word;
  for (const char* at = command;; ++at) {
    if (*at != ' ' && *at != '\0') {
      word += *at;
      continue;
    }
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
    if (*at == '\0') return words;
  }
}

void ResetDeadline(const Options& options, Child& child) {
  child.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout_s);
}

Child Start(const Options& options, const std::vector<KernelOutcome>& outcomes,
            std::vector<std::size_t> indices, const std::string& phase) {
  Child child;
  child.indices = std::move(indices);
  ResetDeadline(options, child);
  std::vector<std::string> words = SelfCommand();
  words.insert(words.end(), options.bundles.begin(), options.bundles.end());
  if (options.compile) words.emplace_back("--compile");
  if (options.small) words.emplace_back("--small");
  if (!options.libcuda.empty()) words.insert(words.end(), {"--libcuda", options.libcuda});
  words.insert(words.end(), {"--store", options.store, "--device", std::to_string(options.device),
                             "--seed", std::to_string(options.seed), "--phase", phase});
  for (const std::size_t index : child.indices) {
    words.insert(words.end(), {"--child", outcomes[index].spec});
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw CheckError("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int failed = posix_spawnp(&child.pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  child.fd = ends[0];
  if (failed != 0) throw CheckError(Format("cannot start {}: {}", argv[0], std::strerror(failed)));
  return child;
}

/// Reads what a child says for a moment; hands each line to `take`. True when it is over; `death`
/// says how if it did not end by itself.
template <class Take>
bool Advance(const Options& options, Child& child, std::string& death, Take&& take) {
  pollfd wait{child.fd, POLLIN, 0};
  poll(&wait, 1, 20);
  char piece[4096];
  ssize_t got = 1;
  if (wait.revents != 0) {
    got = read(child.fd, piece, sizeof piece);
    if (got > 0) child.output.append(piece, static_cast<std::size_t>(got));
  }
  for (std::size_t end; (end = child.output.find('\n')) != std::string::npos;) {
    take(child.output.substr(0, end));
    child.output.erase(0, end + 1);
    ResetDeadline(options, child);
  }
  const bool late = std::chrono::steady_clock::now() > child.deadline;
  if (got > 0 && !late) return false;
  if (late) kill(child.pid, SIGKILL);
  int status = 0;
  waitpid(child.pid, &status, 0);
  close(child.fd);
  if (late) {
    death = Format("no end within {} s: killed", options.timeout_s);
  } else if (WIFSIGNALED(status)) {
    death =
        Format("its process died: signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) != 0) {
    death = Format("its process ended with {}", WEXITSTATUS(status));
  }
  return true;
}

/// Runs the kernels `wanted` in `jobs` processes at a time, `batch` in each; one that fails is the
/// last of its process, and the others go to a new one. `report(index, json, death)` for each.
template <class Report>
void RunBatches(const Options& options, const std::vector<KernelOutcome>& outcomes,
                std::vector<std::size_t> wanted, const std::string& phase, int jobs,
                Report&& report) {
  constexpr std::size_t kBatch = 8;
  std::reverse(wanted.begin(), wanted.end());  // taken from the back
  std::vector<Child> running;
  while (!wanted.empty() || !running.empty()) {
    while (!wanted.empty() && running.size() < static_cast<std::size_t>(jobs)) {
      const std::size_t count = std::min(kBatch, wanted.size());
      std::vector<std::size_t> indices(wanted.rbegin(),
                                       wanted.rbegin() + static_cast<std::ptrdiff_t>(count));
      wanted.resize(wanted.size() - count);
      running.push_back(Start(options, outcomes, std::move(indices), phase));
    }
    for (std::size_t i = 0; i < running.size();) {
      Child& child = running[i];
      std::string death;
      const bool over = Advance(options, child, death, [&](const std::string& line) {
        if (child.done < child.indices.size()) report(child.indices[child.done++], line, "");
      });
      if (!over) {
        ++i;
        continue;
      }
      // It ended without a word on the next kernel: that one is to blame if it died, or if it said
      // nothing at all.
      if (child.done < child.indices.size() && (!death.empty() || child.done == 0)) {
        report(child.indices[child.done++], "", death.empty() ? "its process said nothing" : death);
      }
      for (std::size_t left = child.indices.size(); left > child.done; --left) {
        wanted.push_back(child.indices[left - 1]);
      }
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void CheckAll(const Options& options, std::vector<KernelOutcome>& outcomes) {
  std::vector<std::size_t> all(outcomes.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  RunBatches(options, outcomes, all, "check", options.jobs,
             [&](std::size_t index, const std::string& json, const std::string& death) {
               TakeOutcome(json, death, outcomes[index]);
               std::printf("%s\n", CheckLine(outcomes[index]).c_str());
               std::fflush(stdout);
             });
}

void TimeAll(const Options& options, const DeviceFacts& device,
             std::vector<KernelOutcome>& outcomes) {
  std::vector<std::size_t> passed;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].Passed()) passed.push_back(i);
  }
  RunBatches(options, outcomes, passed, "time", 1,
             [&](std::size_t index, const std::string& json, const std::string& death) {
               KernelOutcome timed;
               TakeOutcome(json, death, timed);
               outcomes[index].report.times = timed.report.times;
               if (!timed.trouble.empty()) outcomes[index].trouble = "timed: " + timed.trouble;
               std::printf("%s", TimeLines(outcomes[index], device).c_str());
               std::fflush(stdout);
             });
}

/// The GPU, by a process of its own: the parent makes no context.
DeviceFacts AskDevice(const Options& options) {
  Child child = Start(options, {}, {}, "device");
  std::string answer, death;
  while (!Advance(options, child, death, [&](const std::string& line) { answer = line; })) {
  }
  DeviceFacts device;
  if (!TakeDevice(answer, device)) throw CheckError(answer.empty() ? death : ErrorOf(answer));
  device.peak_bf16_tflops = options.peak_tflops > 0 ? options.peak_tflops : PeakBf16Tflops(device);
  return device;
}

int RunParent(Options options) {
  std::random_device entropy;
  if (options.seed == 0) options.seed = (std::uint64_t{entropy()} << 32) | entropy();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (options.jobs <= 0) options.jobs = std::clamp(cores / 4, 1, 8);
  const Folder folder;
  if (options.store.empty()) options.store = folder.path() + "/store";

  const DeviceFacts device = AskDevice(options);
  std::vector<KernelOutcome> outcomes;
  const KernelFamilies families = Must(CheckedFamilies(), "families");
  for (const KernelSpec& spec : families.Catalog(NativeArch(device.compute_capability))) {
    const std::string name = SpecName(spec);
    const auto wanted = [&](const std::string& text) {
      return name.find(text) != std::string::npos;
    };
    if (!options.only.empty() && std::none_of(options.only.begin(), options.only.end(), wanted)) {
      continue;
    }
    outcomes.emplace_back();
    outcomes.back().spec = name;
    if (options.list) std::printf("%s\n", name.c_str());
  }
  if (options.list) return 0;
  if (outcomes.empty()) {
    std::fprintf(stderr, "tilewright_gpu_check: no kernel to check\n");
    return 1;
  }
  std::printf("%s\n%zu kernels, seed %llu, %d at once\n\n", DeviceLine(device).c_str(),
              outcomes.size(), static_cast<unsigned long long>(options.seed), options.jobs);
  CheckAll(options, outcomes);
  if (options.time) {
    std::printf("\n");
    TimeAll(options, device, outcomes);
  }
  std::printf("\n%s", SummaryTable(outcomes, device).c_str());
  if (!options.json.empty())
    WriteReport(options.json, outcomes, device, options.seed, options.words);
  const auto failed = std::count_if(outcomes.begin(), outcomes.end(),
                                    [](const KernelOutcome& outcome) { return !outcome.Passed(); });
  std::printf("\n%zu kernels, %td failed\n", outcomes.size(), failed);
  return failed == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  try {
    if (!options.phase.empty()) RunChild(options);
    return RunParent(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewright_gpu_check: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace tilewright::gpu_check

int main(int argc, char** argv) { return tilewright::gpu_check::Main(argc, argv); }
