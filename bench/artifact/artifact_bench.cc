// What the artifact store costs, and what a cold compilation does. Prints one JSON object.
//
//   artifact_bench cold [ARCH...]   every kernel of the catalog (default sm_90a), each in a process
//                                   of its own: ms of loading NVRTC, of the compilation, of it all
//   artifact_bench key              us of making both keys of a spec
//   artifact_bench find             ns and allocations of spec -> handle on a hit
//   artifact_bench file             us of a hit in the user's folder, 150 KB
//   artifact_bench open             ms of opening a store of 1,000 entries
//   artifact_bench folder           us of publishing 150 KB, of a count, of a lock, and of SHA-256
//   artifact_bench bundle           ns of a miss in a bundle's index, us of a hit
//   artifact_bench layouts          cold, file, bundle and memory for NT, TN, NN, TT
//   artifact_bench herd             16 processes x 8 threads over 50 cold kernels
//
// Real kernels are compiled by NVRTC with its own cache off (--no-cache, as always) and without
// precompiled headers. `file`, `open` and `bundle` use a family of their own and a stand-in for the
// compiler: what they time has nothing to do with what is compiled.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "artifact/build.h"
#include "artifact/dir/store_dir.h"
#include "core/allocation_probe.h"
#include "core/atomic_file.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/text.h"
#include "tilewright/tilewright.h"

extern char** environ;

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

template <class T>
T Must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "tilewright-bench-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder " + pattern);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

double Quantile(std::vector<double> samples, double q) {
  std::sort(samples.begin(), samples.end());
  const auto last = static_cast<double>(samples.size() - 1);
  return samples[static_cast<std::size_t>(std::clamp(q * last + 0.5, 0.0, last))];
}

std::string Samples(const std::vector<double>& samples) {
  return Format(R"({{"median": {:.4g}, "p95": {:.4g}, "min": {:.4g}, "max": {:.4g}, "count": {}}})",
                Quantile(samples, 0.5), Quantile(samples, 0.95), Quantile(samples, 0),
                Quantile(samples, 1), samples.size());
}

// --- Processes -----------------------------------------------------------------------------------

class Process {
 public:
  /// This program with `words`; what it prints is read by Wait.
  /// `input`: the descriptor it reads as standard input; -1: this process's.
  explicit Process(std::vector<std::string> words, int input = -1) {
    words.insert(words.begin(), "/proc/self/exe");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (input >= 0) posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    const int failed = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    fd_ = ends[0];
    if (failed != 0) throw std::runtime_error("cannot start this program again");
  }
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), fd_(std::exchange(other.fd_, -1)) {}
  ~Process() {
    if (fd_ >= 0) close(fd_);
  }

  std::string Wait() {
    std::string output;
    char piece[4096];
    for (ssize_t got; (got = read(fd_, piece, sizeof piece)) > 0;) {
      output.append(piece, static_cast<std::size_t>(got));
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      throw std::runtime_error("a process of this program failed: " + output);
    }
    return output;
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

// --- Real kernels --------------------------------------------------------------------------------

std::string ColdOne(const std::string& name) {
  const auto start = Clock::now();
  const KernelFamilies families = AllKernelFamilies();
  const KernelSources sources = Must(KernelSources::Make(families));
  const KernelSpec spec = Must(ParseSpecName(name));
  const CompileInput input = Must(PrepareCompile(spec, *families.Find(spec.family), sources));
  const double prepare_ms = MsSince(start);
  const auto load = Clock::now();
  const auto compiler = Must(LoadNvrtc());
  const double load_ms = MsSince(load);
  const auto compile = Clock::now();
  const auto output = compiler->Compile(input.Job(), nullptr);
  if (!output) throw std::runtime_error(output.error().error.message + output.error().log);
  const auto spills = output->resources.SpillBytes();
  return Format(R"({{"spec": "{}", "prepare_ms": {:.2f}, "load_ms": {:.2f}, "compile_ms": {:.2f}, )"
                R"("total_ms": {:.2f}, "cubin_bytes": {}, "registers": {}, "spill_bytes": {}}})",
                name, prepare_ms, load_ms, MsSince(compile), MsSince(start), output->cubin.size(),
                output->resources.registers, spills ? Format("{}", *spills) : "null");
}

std::string Cold(const std::vector<std::string>& archs) {
  const KernelFamilies families = AllKernelFamilies();
  std::string rows;
  for (const std::string& arch : archs.empty() ? std::vector<std::string>{"sm_90a"} : archs) {
    for (const KernelSpec& spec : families.Catalog(Must(ParseCudaArch(arch)))) {
      std::string row = Process({"cold-one", SpecName(spec)}).Wait();
      row.pop_back();  // the end of its line
      rows += (rows.empty() ? "\n  " : ",\n  ") + row;
    }
  }
  return Format(R"({{"compiler": "{}", "kernels": [{}]}})",
                Must(LoadNvrtc())->identity().ToString(), rows);
}

std::string Key() {
  const KernelFamilies families = AllKernelFamilies();
  const auto start = Clock::now();
  const KernelSources sources = Must(KernelSources::Make(families));
  const double sources_us = 1e3 * MsSince(start);
  const CompilerIdentity identity = Must(LoadNvrtc())->identity();
  const std::vector<KernelSpec> specs = families.Catalog(CudaArch{90, 'a'});
  std::vector<double> us;
  for (int round = 0; round < 20; ++round) {
    for (const KernelSpec& spec : specs) {
      const auto begin = Clock::now();
      const KeyRecord request = Must(MakeRequestRecord(spec, *families.Find(spec.family), sources));
      const KeyRecord action = Must(MakeActionRecord(request.key, identity));
      us.push_back(1e3 * MsSince(begin));
      if (action.bytes.empty()) throw std::runtime_error("no key");
    }
  }
  return Format(R"({{"key_us": {}, "sources_once_us": {:.1f}, "specs": {}}})", Samples(us),
                sources_us, specs.size());
}

/// One bf16 product of the portable family for every pair of orders.
std::vector<std::pair<std::string, KernelSpec>> LayoutSpecs(const KernelFamilies& families) {
  KernelSpec base;
  for (const KernelSpec& spec : families.Catalog(CudaArch{80, 0})) {
    if (spec.family.view() == "gemm_mma" && spec.type_a == DataType::kBF16) base = spec;
    if (base.family.view() == "gemm_mma") break;
  }
  std::vector<std::pair<std::string, KernelSpec>> specs;
  for (const Order a : {Order::kColMajor, Order::kRowMajor}) {
    for (const Order b : {Order::kRowMajor, Order::kColMajor}) {
      base.order_a = a;
      base.order_b = b;
      specs.emplace_back(
          std::string(a == Order::kRowMajor ? "T" : "N") + (b == Order::kRowMajor ? "T" : "N"),
          base);
    }
  }
  return specs;
}

/// A store's answer to one spec in a process of its own: what a program's first call costs.
std::string CompileOne(const std::string& root, const std::string& bundle,
                       const std::string& name) {
  const KernelSpec spec = Must(ParseSpecName(name));
  ArtifactStoreOptions options;
  options.root = root;
  if (!bundle.empty()) {
    options.bundles = {bundle};
    options.mode = CacheMode::kStrict;
  }
  const auto opening = Clock::now();
  const auto store = Must(ArtifactStore::Open(AllKernelFamilies(), options));
  const double open_us = 1e3 * MsSince(opening);
  // Once a process: which compiler is it? A bundle does not ask.
  const auto identifying = Clock::now();
  if (bundle.empty()) Must(store->Compiler());
  const double compiler_us = bundle.empty() ? 1e3 * MsSince(identifying) : 0;
  const auto asking = Clock::now();
  const KernelHandle handle = Must(store->Compile(spec));
  const double first_us = 1e3 * MsSince(asking);
  std::vector<double> ns;
  for (int round = 0; round < 21; ++round) {
    constexpr int kFinds = 20000;
    const auto start = Clock::now();
    for (int i = 0; i < kFinds; ++i) {
      if (store->Find(spec) != handle) throw std::runtime_error("another handle");
    }
    ns.push_back(1e6 * MsSince(start) / kFinds);
  }
  return Format(
      R"({{"open_us": {:.1f}, "compiler_us": {:.1f}, "first_us": {:.1f}, "memory_ns": {:.1f}, )"
      R"("compiles": {}, "cubin_bytes": {}}})",
      open_us, compiler_us, first_us, Quantile(ns, 0.5), store->process_counters().compiles,
      handle->cubin.size());
}

std::string Layouts() {
  const Folder folder;
  const KernelFamilies families = AllKernelFamilies();
  const auto specs = LayoutSpecs(families);
  std::string rows;
  const auto add = [&](const std::string& layout, const char* how, std::string result) {
    while (!result.empty() && result.back() == '\n') result.pop_back();
    rows += Format("{}{{\"layout\": \"{}\", \"from\": \"{}\", \"result\": {}}}",
                   rows.empty() ? "\n  " : ",\n  ", layout, how, result);
  };
  std::vector<KernelSpec> all;
  for (const auto& [layout, spec] : specs) {
    all.push_back(spec);
    add(layout, "cold", Process({"compile-one", folder / "store", "", SpecName(spec)}).Wait());
    // The median of five processes, since each has only one first time.
    std::vector<std::pair<double, std::string>> hits;
    for (int i = 0; i < 5; ++i) {
      const std::string hit = Process({"compile-one", folder / "store", "", SpecName(spec)}).Wait();
      const std::size_t at = hit.find("\"first_us\": ");
      hits.emplace_back(std::atof(hit.c_str() + at + 12), hit);
    }
    std::sort(hits.begin(), hits.end());
    add(layout, "file", hits[2].second);
  }
  ArtifactStoreOptions options;
  options.root = folder / "store";
  const auto store = Must(ArtifactStore::Open(families, options));
  Must(WriteBundle(*store, all, folder / "layouts.twb", BundleWriteOptions()));
  for (const auto& [layout, spec] : specs) {
    std::vector<std::pair<double, std::string>> hits;
    for (int i = 0; i < 5; ++i) {
      const std::string hit =
          Process({"compile-one", folder / "empty", folder / "layouts.twb", SpecName(spec)}).Wait();
      const std::size_t at = hit.find("\"first_us\": ");
      hits.emplace_back(std::atof(hit.c_str() + at + 12), hit);
    }
    std::sort(hits.begin(), hits.end());
    add(layout, "bundle", hits[2].second);
  }
  return Format("{{\"layouts\": [{}]}}", rows);
}

constexpr int kHerdProcesses = 16;
constexpr int kHerdThreads = 8;
constexpr std::size_t kHerdKernels = 50;

std::vector<KernelSpec> HerdSpecs(const KernelFamilies& families) {
  std::vector<KernelSpec> specs;
  for (const CudaArch arch : {CudaArch{90, 'a'}, CudaArch{80, 0}, CudaArch{89, 0}, CudaArch{120, 0},
                              CudaArch{100, 'a'}}) {
    for (const KernelSpec& spec : families.Catalog(arch)) {
      if (specs.size() < kHerdKernels) specs.push_back(spec);
    }
  }
  return specs;
}

std::string HerdChild(const std::string& root, std::uint64_t number) {
  const KernelFamilies families = AllKernelFamilies();
  const std::vector<KernelSpec> specs = HerdSpecs(families);
  ArtifactStoreOptions options;
  options.root = root;
  const auto store = Must(ArtifactStore::Open(families, options));
  // Everybody starts when the parent closes the pipe.
  char nothing;
  while (read(STDIN_FILENO, &nothing, 1) > 0) {
  }
  const auto start = Clock::now();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kHerdThreads; ++t) {
    threads.emplace_back([&, t] {
      // Every thread wants all of them, each in an order of its own.
      std::vector<KernelSpec> mine = specs;
      Random random(number * kHerdThreads + static_cast<std::uint64_t>(t));
      for (std::size_t i = mine.size(); i > 1; --i) std::swap(mine[i - 1], mine[random() % i]);
      for (const KernelSpec& spec : mine) {
        if (!store->Compile(spec)) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ArtifactCounters counters = store->process_counters();
  return Format("{} {} {} {:.1f}\n", counters.compiles, failures.load(), counters.lock_waits,
                MsSince(start));
}

std::string Herd() {
  const Folder folder;
  const KernelFamilies families = AllKernelFamilies();
  const std::size_t kernels = HerdSpecs(families).size();
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  std::vector<Process> children;
  for (int i = 0; i < kHerdProcesses; ++i) {
    children.emplace_back(
        std::vector<std::string>{"herd-child", folder / "store", std::to_string(i)}, gate[0]);
  }
  close(gate[0]);
  // Time for all to get to the gate; who is late joins a herd under way, which must be as good.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto start = Clock::now();
  close(gate[1]);
  std::uint64_t compiles = 0, failures = 0, waits = 0;
  std::vector<double> child_ms;
  std::string by_process;
  for (Process& child : children) {
    unsigned long long made = 0, failed = 0, waited = 0;
    double ms = 0;
    if (std::sscanf(child.Wait().c_str(), "%llu %llu %llu %lf", &made, &failed, &waited, &ms) !=
        4) {
      throw std::runtime_error("a child said nothing");
    }
    compiles += made;
    failures += failed;
    waits += waited;
    child_ms.push_back(ms);
    by_process += (by_process.empty() ? "" : ", ") + std::to_string(made);
  }
  const double wall_ms = MsSince(start);
  return Format(
      R"({{"processes": {}, "threads": {}, "kernels": {}, "compiles": {}, "failures": {}, )"
      R"("lock_waits": {}, "wall_ms": {:.0f}, "process_ms": {}, "compiles_by_process": [{}]}})",
      kHerdProcesses, kHerdThreads, kernels, compiles, failures, waits, wall_ms, Samples(child_ms),
      by_process);
}

// --- A family and a compiler of our own
// ------------------------------------------------------------

constexpr SourceFile kFiles[] = {{"bench/unit.cu", "#include \"spec.cuh\"\n"}};

KernelFamilies StandInFamilies() {
  KernelFamily family;
  family.name = "stand_in";
  family.source = kFiles[0].name;
  family.files = kFiles;
  family.check = [](const KernelSpec&) -> std::optional<Rejection> { return std::nullopt; };
  family.launch = [](const KernelSpec&) { return KernelLaunchShape{128, 0}; };
  family.limits = [](const KernelSpec&) { return ResourceLimits{}; };
  family.catalog = [](CudaArch) { return std::vector<KernelSpec>{}; };
  KernelFamilies families;
  Must(families.Add(family));
  return families;
}

KernelSpec StandInSpec(int number) {
  KernelSpec spec;
  spec.family = "stand_in";
  spec.arch = {90, 'a'};
  spec.params[0] = number;
  return spec;
}

/// Returns bytes of a given size that depend on the job alone.
class StandInCompiler : public KernelCompiler {
 public:
  explicit StandInCompiler(std::size_t cubin_bytes) : bytes_(cubin_bytes) {
    identity_ = {"stand-in", "1.0", std::string(40, 'a'), "1.0", std::string(40, 'b')};
  }
  const CompilerIdentity& identity() const override { return identity_; }
  tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                      const CancelFn&) const override {
    CompileOutput output;
    Random random(std::hash<std::string>()(job.symbol));
    output.cubin = "\177ELF";
    while (output.cubin.size() < bytes_) output.cubin.push_back(static_cast<char>(random()));
    output.ptx = "// no ptx";
    output.resources.registers = 32;
    output.resources.spill_store_bytes = output.resources.spill_load_bytes = 0;
    output.compile_ms = 100;
    return output;
  }

 private:
  CompilerIdentity identity_;
  std::size_t bytes_;
};

std::unique_ptr<ArtifactStore> OpenStandIn(const std::string& root, std::size_t cubin_bytes) {
  ArtifactStoreOptions options;
  options.root = root;
  options.compiler = std::make_shared<StandInCompiler>(cubin_bytes);
  return Must(ArtifactStore::Open(StandInFamilies(), options));
}

std::string FileHit() {
  constexpr std::size_t kBytes = 150 << 10;
  constexpr int kEntries = 64;
  const Folder folder;
  {
    const auto store = OpenStandIn(folder / "store", kBytes);
    for (int i = 0; i < kEntries; ++i) Must(store->Compile(StandInSpec(i)));
  }
  std::vector<double> us;
  for (int round = 0; round < 5; ++round) {
    const auto store = OpenStandIn(folder / "store", kBytes);
    for (int i = 0; i < kEntries; ++i) {
      const auto start = Clock::now();
      Must(store->Compile(StandInSpec(i)));
      us.push_back(1e3 * MsSince(start));
    }
    if (store->process_counters().compiles != 0) throw std::runtime_error("compiled again");
  }
  return Format(R"({{"file_hit_us": {}, "cubin_bytes": {}}})", Samples(us), kBytes);
}

std::string FindHit() {
  const Folder folder;
  const auto store = OpenStandIn(folder / "store", 1000);
  constexpr int kEntries = 200;
  std::vector<KernelSpec> specs;
  for (int i = 0; i < kEntries; ++i) {
    specs.push_back(StandInSpec(i));
    Must(store->Compile(specs.back()));
  }
  std::vector<double> ns;
  long counted = 0;
  for (int round = 0; round < 101; ++round) {
    const long start_allocations = AllocationProbe::Count();
    constexpr int kRepeat = 20;
    const auto start = Clock::now();
    for (int repeat = 0; repeat < kRepeat; ++repeat) {
      for (const KernelSpec& spec : specs) {
        if (!store->Find(spec)) throw std::runtime_error("a handle is missing");
      }
    }
    const double each = 1e6 * MsSince(start) / (kRepeat * kEntries);
    counted += AllocationProbe::Count() - start_allocations;
    ns.push_back(each);
  }
  return Format(R"({{"find_ns": {}, "allocations": {}, "handles": {}}})", Samples(ns), counted,
                kEntries);
}

std::string Open() {
  constexpr int kEntries = 1000;
  const Folder folder;
  {
    const auto store = OpenStandIn(folder / "store", 8 << 10);
    for (int i = 0; i < kEntries; ++i) Must(store->Compile(StandInSpec(i)));
  }
  std::vector<double> ms;
  for (int i = 0; i < 21; ++i) {
    const auto start = Clock::now();
    const auto store = OpenStandIn(folder / "store", 8 << 10);
    ms.push_back(MsSince(start));
  }
  return Format(R"({{"open_ms": {}, "entries": {}}})", Samples(ms), kEntries);
}

std::string BundleLookup() {
  constexpr int kEntries = 1000;
  const Folder folder;
  const auto maker = OpenStandIn(folder / "store", 150 << 10);
  std::vector<KernelSpec> specs;
  for (int i = 0; i < kEntries; ++i) specs.push_back(StandInSpec(i));
  Must(WriteBundle(*maker, specs, folder / "all.twb", BundleWriteOptions()));
  const auto bundle = Must(Bundle::Open(folder / "all.twb"));
  std::vector<ArtifactKey> strangers(1024);
  Random random(7);
  for (ArtifactKey& key : strangers) {
    for (std::uint8_t& byte : key.bytes) byte = static_cast<std::uint8_t>(random());
  }
  std::vector<double> miss_ns;
  for (int round = 0; round < 101; ++round) {
    const auto start = Clock::now();
    for (const ArtifactKey& key : strangers) {
      if (bundle->Find(key)) throw std::runtime_error("a hit for a random key");
    }
    miss_ns.push_back(1e6 * MsSince(start) / static_cast<double>(strangers.size()));
  }
  ArtifactStoreOptions options;
  options.root = folder / "empty";
  options.bundles = {folder / "all.twb"};
  options.mode = CacheMode::kStrict;
  const auto opening = Clock::now();
  const auto store = Must(ArtifactStore::Open(StandInFamilies(), options));
  const double open_ms = MsSince(opening);
  std::vector<double> hit_us;
  for (int i = 0; i < kEntries; i += 4) {
    const auto start = Clock::now();
    Must(store->Compile(specs[static_cast<std::size_t>(i)]));
    hit_us.push_back(1e3 * MsSince(start));
  }
  return Format(R"({{"bundle_miss_ns": {}, "bundle_hit_us": {}, "open_ms": {:.2f}, "entries": {}, )"
                R"("cubin_bytes": {}, "file_bytes": {}}})",
                Samples(miss_ns), Samples(hit_us), open_ms, kEntries, 150 << 10,
                std::filesystem::file_size(folder / "all.twb"));
}

std::string FolderCosts() {
  constexpr int kEntries = 64;
  const Folder folder;
  const auto maker = OpenStandIn(folder / "maker", 150 << 10);
  const auto dir = StoreDir::Open(folder / "store", {});
  std::vector<double> publish_us, count_us, lock_us, digest_us;
  for (int i = 0; i < kEntries; ++i) {
    const std::string bytes = Must(maker->Serialize(Must(maker->Compile(StandInSpec(i)))));
    const ArtifactKey action = Must(DecodeArtifact(bytes)).action;
    auto start = Clock::now();
    if (dir->Publish(action, bytes) != StoreDir::Published::kNew) {
      throw std::runtime_error("not published");
    }
    publish_us.push_back(1e3 * MsSince(start));
    start = Clock::now();
    Must(Sha256(bytes));
    digest_us.push_back(1e3 * MsSince(start));
    start = Clock::now();
    for (int k = 0; k < 100; ++k) dir->Count(0, 1);
    count_us.push_back(1e3 * MsSince(start) / 100);
    start = Clock::now();
    for (int k = 0; k < 100; ++k) {
      StoreDir::KeyLock lock;
      (void)dir->TryLock(action, lock);
    }
    lock_us.push_back(1e3 * MsSince(start) / 100);
  }
  return Format(R"({{"publish_us": {}, "count_us": {}, "lock_us": {}, "sha256_us": {}}})",
                Samples(publish_us), Samples(count_us), Samples(lock_us), Samples(digest_us));
}

int Main(const std::vector<std::string>& words) {
  const std::string verb = words.empty() ? "" : words[0];
  std::string result;
  if (verb == "cold-one" && words.size() == 2) {
    result = ColdOne(words[1]);
  } else if (verb == "compile-one" && words.size() == 4) {
    result = CompileOne(words[1], words[2], words[3]);
  } else if (verb == "herd-child" && words.size() == 3) {
    result = HerdChild(words[1], std::strtoull(words[2].c_str(), nullptr, 10));
  } else if (verb == "cold") {
    result = Cold({words.begin() + 1, words.end()});
  } else if (verb == "key") {
    result = Key();
  } else if (verb == "find") {
    result = FindHit();
  } else if (verb == "file") {
    result = FileHit();
  } else if (verb == "open") {
    result = Open();
  } else if (verb == "folder") {
    result = FolderCosts();
  } else if (verb == "bundle") {
    result = BundleLookup();
  } else if (verb == "layouts") {
    result = Layouts();
  } else if (verb == "herd") {
    result = Herd();
  } else {
    std::fprintf(
        stderr,
        "usage: artifact_bench cold [ARCH...]|key|find|file|open|folder|bundle|layouts|herd\n");
    return 2;
  }
  std::printf("%s\n", result.c_str());
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  try {
    return tilewright::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "artifact_bench: %s\n", error.what());
    return 1;
  }
}
