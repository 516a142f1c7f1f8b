#include "artifact/store/fake_compiler.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <new>
#include <thread>

#include "core/hash.h"
#include "core/random.h"

namespace tilewright::test {

FakeCompiler::FakeCompiler(Options options) : options_(std::move(options)) {
  identity_.backend = "nvrtc";
  identity_.version = options_.version;
  identity_.build_id = options_.build_id;
  identity_.builtins_version = options_.version;
  identity_.builtins_build_id = options_.build_id;
}

std::shared_ptr<FakeCompiler> MakeFakeCompiler(FakeCompiler::Options options) {
  return std::make_shared<FakeCompiler>(std::move(options));
}

tl::expected<CompileOutput, CompileFailure> FakeCompiler::Compile(const CompileJob& job,
                                                                  const CancelFn& cancelled) const {
  const int running = ++running_;
  struct Leave {
    std::atomic<int>& count;
    ~Leave() { --count; }
  } const leave{running_};
  for (int most = most_at_once_; running > most;) {
    if (most_at_once_.compare_exchange_weak(most, running)) break;
  }
  ++compiles_;
  if (!options_.log_file.empty()) {
    const std::string line = job.symbol + " " + std::to_string(getpid()) + "\n";
    const int fd = open(options_.log_file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
    close(fd);
  }
  if (options_.begins) options_.begins(job);
  const auto end = std::chrono::steady_clock::now() + options_.takes;
  while (options_.hangs || std::chrono::steady_clock::now() < end) {
    if (cancelled && cancelled()) {
      return tl::unexpected<CompileFailure>(
          CompileFailure{false, {ErrorCode::kCancelled, "cancelled"}, ""});
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
        std::chrono::milliseconds(1), end - std::chrono::steady_clock::now()));
  }
  if (options_.fails) {
    if (auto failure = options_.fails(job)) {
      return tl::unexpected<CompileFailure>(std::move(*failure));
    }
  }
  std::uint64_t seed = Hash64(job.source);
  for (const SourceFile& header : job.headers)
    seed = Hash64(header.text, Hash64(header.name, seed));
  for (const std::string& option : job.options) seed = Hash64(option, seed);
  seed = Hash64(options_.salt, Hash64(options_.build_id, seed));
  Random random(seed);
  CompileOutput output;
  output.cubin = "\177ELF";
  while (output.cubin.size() < options_.cubin_bytes) {
    output.cubin += static_cast<char>(random.Next());
  }
  output.ptx = "// ptx of " + job.symbol + " " + std::to_string(seed) + "\n";
  output.log = "info: used 32 registers\n";
  output.resources.registers = 32;
  output.resources.spill_store_bytes = output.resources.spill_load_bytes = 0;
  output.compile_ms = options_.reported_ms;
  return output;
}

namespace {

std::optional<Rejection> CheckGemm(const KernelSpec& spec) {
  if (spec.tile_m == kTileOfNoMemory) throw std::bad_alloc();
  if (spec.tile_m != 0) return std::nullopt;
  return Rejection{Reason::kShape, "tile_m = 0", "a tile"};
}
std::optional<Rejection> CheckNothing(const KernelSpec&) { return std::nullopt; }
KernelLaunchShape Launch(const KernelSpec&) { return {128, 4096}; }
ResourceLimits Limits(const KernelSpec&) { return {}; }
std::vector<KernelSpec> LayoutCatalog(CudaArch arch) {
  std::vector<KernelSpec> specs = LayoutSpecs();
  for (KernelSpec& spec : specs) spec.arch = arch;
  return specs;
}
std::vector<KernelSpec> NoCatalog(CudaArch) { return {}; }

}  // namespace

KernelFamilies FakeFamilies(const FakeSources& sources, std::uint32_t launch_abi) {
  struct Kept {
    FakeSources sources;
    std::vector<SourceFile> files;
  };
  static std::mutex mutex;
  static auto* const kKept = new std::deque<Kept>;  // for the program's life
  const std::lock_guard lock(mutex);
  Kept& kept = kKept->emplace_back(Kept{sources, {}});
  kept.files = {{"device/cuda/kernels/types.cuh", "// types\n"},
                {"fake/gemm.cu", kept.sources.gemm},
                {"fake/norm.cu", kept.sources.norm},
                {"fake/tile.cuh", kept.sources.tile}};
  KernelFamilies families;
  KernelFamily gemm;
  gemm.name = "fake_gemm";
  gemm.launch_abi = launch_abi;
  gemm.source = "fake/gemm.cu";
  gemm.files = kept.files;
  gemm.check = CheckGemm;
  gemm.launch = Launch;
  gemm.limits = Limits;
  gemm.catalog = LayoutCatalog;
  KernelFamily norm = gemm;
  norm.name = "fake_norm";
  norm.source = "fake/norm.cu";
  norm.check = CheckNothing;
  norm.catalog = NoCatalog;
  if (!families.Add(gemm) || !families.Add(norm)) std::abort();
  return families;
}

KernelSpec GemmSpec(int n) {
  KernelSpec spec;
  spec.family = "fake_gemm";
  spec.arch = {90, 'a'};
  spec.type_a = spec.type_b = spec.type_d = DataType::kBF16;
  spec.order_a = Order::kRowMajor;
  spec.tile_m = 128;
  spec.tile_n = 128;
  spec.tile_k = 64;
  spec.warps = 4;
  spec.stages = 4;
  spec.params[0] = n;
  return spec;
}

KernelSpec NormSpec(int n) {
  KernelSpec spec;
  spec.family = "fake_norm";
  spec.arch = {90, 'a'};
  spec.type_a = spec.type_d = DataType::kBF16;
  spec.params[0] = n;
  return spec;
}

std::vector<KernelSpec> GemmSpecs(int count) {
  std::vector<KernelSpec> specs;
  for (int i = 0; i < count; ++i) specs.push_back(GemmSpec(i));
  return specs;
}

std::vector<KernelSpec> LayoutSpecs() {
  std::vector<KernelSpec> specs;
  for (const Order a : {Order::kRowMajor, Order::kColMajor}) {
    for (const Order b : {Order::kRowMajor, Order::kColMajor}) {
      KernelSpec spec = GemmSpec();
      spec.order_a = a;
      spec.order_b = b;
      specs.push_back(spec);
    }
  }
  return specs;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path() / "tilewright-store-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteWhole(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  if (!file.flush()) std::abort();
}

std::size_t CountLines(const std::string& path) {
  const std::string text = ReadWhole(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::vector<std::string> FilesUnder(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> EntryFilesUnder(const std::string& root) {
  std::vector<std::string> files = FilesUnder(root);
  std::erase_if(
      files, [](const std::string& file) { return file.find("/entries/") == std::string::npos; });
  return files;
}

std::size_t OpenDescriptors() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

ArtifactStoreOptions FakeOptions(const std::string& root,
                                 std::shared_ptr<const KernelCompiler> compiler) {
  ArtifactStoreOptions options;
  options.root = root;
  options.compiler = std::move(compiler);
  options.compile_threads = 2;
  options.compile_memory_bytes = 1 << 20;
  return options;
}

std::unique_ptr<ArtifactStore> OpenFake(ArtifactStoreOptions options,
                                        const KernelFamilies& families) {
  auto store = ArtifactStore::Open(families, std::move(options));
  if (!store) {
    std::fprintf(stderr, "ArtifactStore::Open: %s\n", store.error().message.c_str());
    std::abort();
  }
  return std::move(*store);
}

}  // namespace tilewright::test
