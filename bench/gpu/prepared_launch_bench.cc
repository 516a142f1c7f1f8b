// What a prepared launch on a GPU costs over the bare driver entry: one addition of few elements
// through PreparedGraph::Run, and cuLaunchKernelEx with the same kernel, grid, parameters and
// attributes, in paired bursts that the queue of the GPU takes without waiting.
//
//   prepared_launch_bench [--device cuda:0] [--library LIBCUDA] [--bundle FILE] [ROUNDS]
// prints one JSON object: prepared_ns and direct_ns (medians over rounds), over_ns (of the paired
// differences: the median, between which two of them it lies with 95 % confidence, the lowest and
// the highest), allocations of all prepared calls. The confidence is that of one process: another
// one has its code and data at other addresses, so compare several.
//
// Over the libcuda of the tests (tests/device/fake_cuda.h), whose launches then do nothing at all,
// over_ns is the work of this library alone; and what the two launches give the driver is compared.
//
// Kernels that may start before their predecessor has ended are launched with one attribute more,
// which the driver takes time for: so is the bare entry. TILEWRIGHT_PDL=0 takes it from both.

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/allocation_probe.h"
#include "core/env.h"
#include "device/cuda/driver.h"
#include "device/fake_cuda.h"
#include "ops/elementwise/cuda/elementwise_launch.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

using cuda::FakeCuda;

/// Launches a burst: fewer than a GPU's queue holds (1,024), so that none of them waits.
constexpr int kBurst = 200;
/// Rounds that do not count: the caches and the branch predictor get to know both kinds.
constexpr std::size_t kWarmRounds = 20;
/// The first architecture with the attribute for early starts.
constexpr int kFirstToWait = 90;
constexpr std::int64_t kColumns = 64, kRows = 4;

struct Options {
  ContextOptions context;
  std::size_t rounds = 501;
};

/// The bare launch: everything that the driver is given, put together once. It refers to members of
/// its own, and so it is moved only before Attach.
struct Direct {
  const cuda::DriverApi* api = nullptr;
  std::unique_ptr<DeviceModule> module;
  cuda::CudaLaunch launch;
  CUfunction function = nullptr;
  CUlaunchConfig config{};
  CUlaunchAttribute early{};

  /// Lets the kernel start early where a prepared launch behind another kernel does.
  void Attach() {
    if (!launch.programmatic || GetEnv("TILEWRIGHT_PDL") == "0") return;
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
    config.attrs = &early;
    config.numAttrs = 1;
  }

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
    const KernelFamily* const family = store.families().Find(spec.family);
    direct.launch.programmatic =
        family != nullptr && family->waits_for_prerequisites && spec.arch.number >= kFirstToWait;
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

struct Spread {
  double median = 0, confident_low = 0, confident_high = 0, min = 0, max = 0;
};

/// The ranks of the interval are the sign test's: half the values, give or take 0.98 sqrt(n).
Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  const double reach = 0.98 * std::sqrt(static_cast<double>(values.size()));
  const auto at = [&](double rank) {
    return values[static_cast<std::size_t>(std::clamp(rank, 0.0, last))];
  };
  return {.median = values[values.size() / 2],
          .confident_low = at(std::floor(last / 2 - reach)),
          .confident_high = at(std::ceil(last / 2 + reach)),
          .min = values.front(),
          .max = values.back()};
}

/// Alternating bursts, the GPU idle before each; which kind comes first alternates too.
Status Measure(const PreparedGraph& prepared, Direct& direct, Device& device, std::size_t rounds) {
  const Stream stream = device.default_stream();
  std::vector<double> through, straight, over;
  for (auto* times : {&through, &straight, &over}) times->reserve(rounds);
  bool failed = false;
  long allocations = 0;
  for (std::size_t i = 0; i < kWarmRounds + rounds; ++i) {
    double prepared_ns = 0, direct_ns = 0;
    for (const bool of_prepared : {i % 2 == 0, i % 2 != 0}) {
      if (of_prepared) {
        const long before = AllocationProbe::Count();
        prepared_ns = BurstNs([&] { failed |= !prepared.Run(stream); });
        allocations += AllocationProbe::Count() - before;
      } else {
        direct_ns = BurstNs([&] { failed |= !direct(); });
      }
      if (Status s = device.Synchronize(stream); !s) return s;
    }
    if (i < kWarmRounds) continue;
    through.push_back(prepared_ns);
    straight.push_back(direct_ns);
    over.push_back(prepared_ns - direct_ns);
  }
  if (failed) return Fail(ErrorCode::kInternal, "a launch failed");
  const Spread spread = SpreadOf(over);
  fmt::print(R"({{"device":"{}","rounds":{},"burst":{},"early":{},)"
             R"("prepared_ns":{:.1f},"direct_ns":{:.1f},)"
             R"("over_ns":{{"median":{:.1f},"ci95":[{:.1f},{:.1f}],"min":{:.1f},"max":{:.1f}}},)"
             R"("allocations":{}}})"
             "\n",
             device.spec().ClassId(), rounds, kBurst, direct.config.numAttrs > 0,
             SpreadOf(through).median, SpreadOf(straight).median, spread.median,
             spread.confident_low, spread.confident_high, spread.min, spread.max, allocations);
  return {};
}

/// Over the fake driver: an error unless it is given the same by both, behind another kernel.
Status CheckSame(const PreparedGraph& prepared, Direct& direct, Device& device, FakeCuda& fake) {
  const Stream stream = device.default_stream();
  std::vector<FakeCuda::Launch> seen;
  fake.SetKernels([&seen](const FakeCuda::Launch& launch) {
    seen.push_back(launch);
    return 0;
  });
  const bool launched = prepared.Run(stream) && prepared.Run(stream) && direct();
  Status done = device.Synchronize(stream);
  fake.SetKernels([](const FakeCuda::Launch&) { return 0; });
  if (!done) return done;
  if (!launched || seen.size() != 3) return Fail(ErrorCode::kInternal, "a launch failed");
  const FakeCuda::Launch &ours = seen[1], &bare = seen[2];
  const auto bytes = static_cast<std::ptrdiff_t>(direct.launch.params.size());
  const bool same =
      ours.symbol == bare.symbol && ours.grid == bare.grid && ours.block == bare.block &&
      ours.cluster == bare.cluster && ours.dynamic_smem_bytes == bare.dynamic_smem_bytes &&
      ours.programmatic == bare.programmatic && ours.stream == bare.stream &&
      std::equal(ours.params.begin(), ours.params.begin() + bytes, bare.params.begin());
  if (!same) return Fail(ErrorCode::kInternal, "the bare launch is not the prepared one");
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
  direct->Attach();
  FakeCuda* const fake = FakeOf(options.context.cuda_library);
  if (fake != nullptr) {
    if (Status same = CheckSame(**prepared, *direct, device, *fake); !same) return same;
    fake->SetMute(true);
  }
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
