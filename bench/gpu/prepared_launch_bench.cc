// What a prepared launch on a GPU costs over the bare driver entry: one addition of few elements
// through PreparedGraph::Run, and cuLaunchKernelEx with the same kernel, grid and parameters, in
// paired bursts that the queue of the GPU takes without waiting.
//
//   prepared_launch_bench [--device cuda:0] [--library LIBCUDA] [--bundle FILE] [ROUNDS]
// prints one JSON object: prepared_ns and direct_ns (medians over rounds), over_ns (median, lowest
// and highest of the paired differences), allocations of all prepared calls.
//
// Over the libcuda of the tests (tests/device/fake_cuda.h), whose launches then do nothing at all,
// over_ns is the work of this library alone.
//
// Kernels that may start before their predecessor has ended are launched with one attribute more,
// which the driver takes time for; TILEWRIGHT_PDL=0 launches them as the bare entry does.

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/allocation_probe.h"
#include "device/cuda/driver.h"
#include "device/fake_cuda.h"
#include "ops/elementwise/cuda/elementwise_launch.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

using cuda::FakeCuda;

/// Launches a burst: fewer than a GPU's queue holds (1,024), so that none of them waits.
constexpr int kBurst = 200;
constexpr std::int64_t kColumns = 64, kRows = 4;

struct Options {
  ContextOptions context;
  std::size_t rounds = 501;
};

/// The bare launch: everything that the driver is given.
struct Direct {
  const cuda::DriverApi* api = nullptr;
  std::unique_ptr<DeviceModule> module;
  cuda::CudaLaunch launch;
  CUfunction function = nullptr;
  CUlaunchConfig config{};

  bool operator()() {
    void* parameters[] = {launch.params.data()};
    return api->cuLaunchKernelEx(&config, function, parameters, nullptr) == CUDA_SUCCESS;
  }
};

Result<Direct> MakeDirect(const Options& options, Context& context, const PreparedStep& step,
                          const TensorView& a, const TensorView& b, const TensorView& out) {
  Direct direct;
  const Result<const cuda::CudaDriver*> driver =
      cuda::CudaDriver::Load(options.context.cuda_library);
  if (!driver) return Fail(driver.error());
  direct.api = &(*driver)->api();
  Device& device = context.device();
  ArtifactStore& store = *context.artifacts();
  const CudaArch arch = NativeArch(device.spec().compute_capability);
  for (const KernelSpec& spec : store.families().Catalog(arch)) {
    if (SpecName(spec) != step.kernel) continue;
    const Result<KernelHandle> compiled = store.Compile(spec);
    if (!compiled) return Fail(compiled.error());
    auto module = device.LoadModule(std::as_bytes(std::span((*compiled)->cubin)));
    if (!module) return Fail(module.error());
    const Result<void*> function = (*module)->Function((*compiled)->symbol.c_str());
    if (!function) return Fail(function.error());
    cuda::LaunchResult launch = ElementwiseLaunch(spec, {elementwise::Function::kAdd, a, b, out});
    if (!launch) return Fail(ErrorCode::kInternal, launch.error().ToString());
    direct.module = std::move(*module);
    direct.launch = *launch;
    direct.function = static_cast<CUfunction>(*function);
    direct.config = {.gridDimX = launch->grid[0],
                     .gridDimY = launch->grid[1],
                     .gridDimZ = launch->grid[2],
                     .blockDimX = launch->block[0],
                     .blockDimY = launch->block[1],
                     .blockDimZ = launch->block[2],
                     .sharedMemBytes = launch->dynamic_smem_bytes,
                     .hStream = static_cast<CUstream>(device.default_stream().native),
                     .attrs = nullptr,
                     .numAttrs = 0};
    return direct;
  }
  return Fail(ErrorCode::kInternal, "no spec of the catalog is called " + step.kernel);
}

template <class Call>
double BurstNs(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kBurst; ++i) call();
  const std::chrono::duration<double, std::nano> span = std::chrono::steady_clock::now() - start;
  return span.count() / kBurst;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Alternating bursts, the GPU idle before each; which kind comes first alternates too.
Status Measure(const PreparedGraph& prepared, Direct& direct, Device& device, std::size_t rounds) {
  const Stream stream = device.default_stream();
  std::vector<double> through(rounds), straight(rounds), over(rounds);
  bool failed = false;
  long allocations = 0;
  for (std::size_t i = 0; i < rounds; ++i) {
    for (const bool of_prepared : {i % 2 == 0, i % 2 != 0}) {
      if (of_prepared) {
        const long before = AllocationProbe::Count();
        through[i] = BurstNs([&] { failed |= !prepared.Run(stream); });
        allocations += AllocationProbe::Count() - before;
      } else {
        straight[i] = BurstNs([&] { failed |= !direct(); });
      }
      if (Status s = device.Synchronize(stream); !s) return s;
    }
    over[i] = through[i] - straight[i];
  }
  if (failed) return Fail(ErrorCode::kInternal, "a launch failed");
  const auto [low, high] = std::minmax_element(over.begin(), over.end());
  fmt::print(R"({{"device":"{}","rounds":{},"burst":{},"prepared_ns":{:.1f},"direct_ns":{:.1f},)"
             R"("over_ns":{{"median":{:.1f},"min":{:.1f},"max":{:.1f}}},"allocations":{}}})"
             "\n",
             device.spec().ClassId(), rounds, kBurst, Median(through), Median(straight),
             Median(over), *low, *high, allocations);
  return {};
}

/// The fake behind a libcuda of the tests, which was loaded; nullptr for the driver.
FakeCuda* FakeOf(const std::string& library) {
  if (library.empty()) return nullptr;
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;
  const auto fake = reinterpret_cast<cuda::FakeCudaFunction>(dlsym(loaded, "fake_cuda"));
  return fake != nullptr ? fake() : nullptr;
}

Status Bench(const Options& options) {
  Result<std::unique_ptr<Context>> context = Context::Create(options.context);
  if (!context) return Fail(context.error());
  Device& device = (*context)->device();
  if (device.spec().kind != DeviceKind::kCuda) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} is no GPU: prepared_bench measures the CPU", (*context)->device_name()));
  }
  const std::size_t bytes = BytesOf(DataType::kF32, kColumns * kRows);
  Result<DeviceMemory> memory = device.Allocate(2 * bytes);
  if (!memory) return Fail(memory.error());
  if (Status s = device.Fill(memory->data(), 0, 2 * bytes, device.default_stream()); !s) return s;
  const auto view = [&](std::size_t at) {
    return Contiguous(memory->as<std::byte>() + at, DataType::kF32, {kColumns, kRows, 1, 1});
  };
  Graph graph;
  const NodeId a = graph.AddLeaf("a", LeafKind::kInput, view(0));
  const NodeId b = graph.AddLeaf("b", LeafKind::kInput, view(bytes));
  const NodeId sum =
      graph.AddOp(TensorOp::kAdd, "sum", {a, b}, DataType::kF32, {kColumns, kRows, 1, 1});
  graph.node(sum).keep = true;
  const std::unique_ptr<DeviceDispatch> dispatch = (*context)->MakeDispatch(Precision::kF32);
  Arena arena(device);
  auto prepared = PrepareGraph(std::move(graph), *dispatch, arena);
  if (!prepared) return Fail(prepared.error());
  Result<Direct> direct = MakeDirect(options, **context, *(*prepared)->steps()[0], view(0),
                                     view(bytes), (*prepared)->graph().node(sum).out);
  if (!direct) return Fail(direct.error());
  FakeCuda* const fake = FakeOf(options.context.cuda_library);
  if (fake != nullptr) fake->SetMute(true);
  Status measured = Measure(**prepared, *direct, device, options.rounds);
  if (fake != nullptr) fake->SetMute(false);
  return measured;
}

int Main(int argc, char** argv) {
  Options options;
  options.context.device = "cuda:0";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool named = word.starts_with("--") && i + 1 < argc;
    if (named && word == "--device") {
      options.context.device = argv[++i];
    } else if (named && word == "--library") {
      options.context.cuda_library = argv[++i];
    } else if (named && word == "--bundle") {
      options.context.artifacts.bundles.emplace_back(argv[++i]);
    } else if (const int rounds = std::atoi(argv[i]); rounds > 0) {
      options.rounds = static_cast<std::size_t>(rounds);
    } else {
      fmt::print(stderr,
                 "usage: prepared_launch_bench [--device cuda:0] [--library LIBCUDA] "
                 "[--bundle FILE] [ROUNDS]\n");
      return 2;
    }
  }
  if (Status status = Bench(options); !status) {
    fmt::print(stderr, "prepared_launch_bench: {}\n", status.error().message);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
