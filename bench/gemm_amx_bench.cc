// Speed of the kernels that read a packed layout of weights, in turn within one process: those of AMX
// beside those of VNNI and AVX-512, as a share of the live peak of bf16 tiles, which is measured
// before every sample, since the tile unit of a shared host may fall to 40 % for seconds.
//
//   gemm_amx_bench [--threads N] [--types q4_0,...] [--m 512,128,32] [--shapes 4096x4096,...]
//                  [--kernels avx512vnni,amx] [--megabytes 64] [--samples 15]
//                  [--launch ",chunk=8,rows=128 chunk=8"]
// Weights rotate over copies of so many megabytes; each of --launch is a configuration as records
// have it (an empty one is the default), for those kernels that know it. Prints, for each problem,
// kernel and configuration:
//   q4_0 m=512 n=4096 k=4096  gemm.... chunk=8  median us (10 % .. 90 %)  GFLOP/s  % of peak
// where the share is the median of each sample's.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/formats.h"
#include "core/random.h"
#include "device/cpu/peak_loops.h"
#include "ops/gemm/register.h"
#include "tilewright/device.h"
#include "tilewright/gemm.h"

namespace tilewright {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Options {
  int threads = DefaultThreads();
  std::vector<std::string> types = {"q4_0", "q4_k", "q8_0", "bf16"};
  std::vector<std::string> kernels = {".amx.", ".avx512vnni."};
  std::vector<int> m = {512, 128, 32};
  std::vector<std::pair<int, int>> shapes = {{4096, 4096}};  ///< n, k
  int megabytes = 64, samples = 15;
  std::vector<std::string> launches = {""};
};

std::vector<std::string> Split(const char* text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

struct Case {
  DataType type;
  int m, n, k;
};

// A kernel with operands of its own, so that it can be timed beside others.
class Contestant {
 public:
  Contestant(Kernel& kernel, const LaunchConfig& config, const Case& c, const Options& options,
             Executor& executor)
      : kernel_(kernel), case_(c), stream_{&executor} {
    const MatrixLayout plain{
        .type = c.type, .order = Order::kColMajor, .rows = c.k, .cols = c.n, .ld = c.k};
    const std::size_t bytes = kernel.PackedBytes(plain);
    stride_ = (bytes + 4095) / 4096 * 4096;
    copies_ = std::max<std::size_t>(
        1, (static_cast<std::size_t>(options.megabytes) << 20) / std::max<std::size_t>(stride_, 1));
    packed_ = Buffer::Make(stride_ * copies_);
    Random random(1);
    std::vector<std::uint8_t> file(BytesOf(c.type, c.k) * static_cast<std::size_t>(c.n));
    // Numbers, small ones: exponents of f16 and bf16 have their upper bits clear or all alike.
    for (auto& byte : file) byte = static_cast<std::uint8_t>(random.Next() & 0x1f);
    for (std::size_t i = 0; i < copies_; ++i) {
      auto* to = packed_.as<std::uint8_t>() + stride_ * i;
      if (i > 0) {
        std::memcpy(to, packed_.data(), bytes);
      } else if (const Status status = kernel.PackB(file.data(), plain, to, stream_); !status) {
        fmt::print("{}\n", status.error().message);
      }
    }
    a_.resize(static_cast<std::size_t>(c.m) * static_cast<std::size_t>(c.k));
    for (float& value : a_) value = static_cast<float>(random.Normal());
    d_.resize(static_cast<std::size_t>(c.m) * static_cast<std::size_t>(c.n));
    GemmDesc problem;
    problem.m = c.m, problem.n = c.n, problem.k = c.k;
    problem.type_b = c.type;
    DeviceSpec device;
    device.cores = executor.workers();
    spec_.kernel = &kernel;
    spec_.config = config;
    scratch_ = Buffer::Make(kernel.PartialsBytes(problem, spec_, device));
    args_.a = a_.data(), args_.d = d_.data();
    args_.a_layout = {.rows = c.m, .cols = c.k, .ld = c.k};
    args_.b_layout = plain;
    args_.b_layout.pack = kernel.desc().pack_b;
    args_.d_layout = {.rows = c.m, .cols = c.n, .ld = c.n};
  }

  // One launch with the next copy of the weights, and the peak of the moment before it.
  void Sample(double peak_gflop_s) {
    args_.b = packed_.as<std::uint8_t>() + stride_ * (turn_++ % copies_);
    Workspace workspace{.partials = scratch_.data(), .partials_size = scratch_.size()};
    const double start = Now();
    const Status status = kernel_.Launch(args_, spec_, workspace, stream_);
    const double took = Now() - start;
    if (!status) fmt::print("{}\n", status.error().message);
    if (turn_ <= 2) return;
    times_.push_back(took);
    shares_.push_back(2e-9 * case_.m * case_.n * case_.k / took / peak_gflop_s);
  }

  void Print() {
    std::sort(times_.begin(), times_.end());
    std::sort(shares_.begin(), shares_.end());
    const double median = times_[times_.size() / 2];
    fmt::print(
        "{} m={} n={} k={}  {:<62} {:<20} {:9.1f} us ({:9.1f} .. {:9.1f}) {:8.1f} GFLOP/s {:5.1f} "
        "%\n",
        DataTypeName(case_.type), case_.m, case_.n, case_.k, kernel_.name(),
        kernel_.ConfigText(spec_.config), median * 1e6, times_[times_.size() / 10] * 1e6,
        times_[times_.size() * 9 / 10] * 1e6, 2e-9 * case_.m * case_.n * case_.k / median,
        100 * shares_[shares_.size() / 2]);
  }

 private:
  Kernel& kernel_;
  Case case_;
  Stream stream_;
  Buffer packed_, scratch_;
  std::size_t stride_ = 0, copies_ = 1, turn_ = 0;
  std::vector<float> a_, d_;
  GemmArgs args_;
  LaunchSpec spec_;
  std::vector<double> times_, shares_;
};

// GFLOP/s of the tile unit on all workers, over a fifth of a millisecond: the sum of what each of them
// reaches while all work, since their speeds differ on a shared host; 1 where there is none.
double LivePeak(const DeviceSpec& device, Executor& executor) {
  if (!device.Has(kFeatureAmxTile | kFeatureAmxBf16)) return 1;
  constexpr int kRounds = 8000;
  constexpr double kGigaflop = 4.0 * 2 * 16 * 16 * 32 * kRounds * 1e-9;
  const int workers = executor.workers();
  std::vector<double> rates(static_cast<std::size_t>(workers));
  std::atomic<int> waiting = workers;
  executor.Run(workers, [&](int task, int) {
    // All at once, each on a thread of its own.
    waiting.fetch_sub(1);
    while (waiting.load() > 0) {
    }
    const double start = Now();
    PeakBF16Amx(kRounds);
    rates[static_cast<std::size_t>(task)] = kGigaflop / (Now() - start);
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

void RunCase(const Case& c, const Options& options, const Registry& registry,
             const DeviceSpec& device, Executor& executor) {
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (Kernel* kernel : registry.kernels()) {
    const KernelDesc& desc = kernel->desc();
    const auto named = [&](const std::string& word) {
      return kernel->name().find(word) != std::string_view::npos;
    };
    if ((desc.type_b & Bit(c.type)) == 0 || desc.type_a != Bit(DataType::kF32) ||
        desc.pack_b == kPackPlain || named(".grouped") || kernel->CheckDevice(device) ||
        (desc.max_m > 0 && c.m > desc.max_m) ||
        std::none_of(options.kernels.begin(), options.kernels.end(), named))
      continue;
    for (const std::string& launch : options.launches) {
      if (const auto config = kernel->ParseConfig(launch))
        contestants.push_back(std::make_unique<Contestant>(*kernel, *config, c, options, executor));
    }
  }
  for (int i = 0; i < options.samples + 2; ++i) {
    for (const auto& contestant : contestants) contestant->Sample(LivePeak(device, executor));
  }
  for (const auto& contestant : contestants) contestant->Print();
}

#if defined(TILEWRIGHT_BENCH_VARIANTS)
}  // namespace
void AddVariants(Registry& registry);
namespace {
#endif

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    const char* value = argv[i + 1];
    if (word == "--threads") options.threads = std::atoi(value);
    if (word == "--types") options.types = Split(value);
    if (word == "--kernels") options.kernels = Split(value);
    if (word == "--launch") options.launches = Split(value);
    if (word == "--megabytes") options.megabytes = std::atoi(value);
    if (word == "--samples") options.samples = std::atoi(value);
    if (word == "--m") {
      options.m.clear();
      for (const std::string& part : Split(value)) options.m.push_back(std::atoi(part.c_str()));
    }
    if (word == "--shapes") {
      options.shapes.clear();
      for (const std::string& part : Split(value)) {
        const std::size_t x = part.find('x');
        options.shapes.emplace_back(std::atoi(part.c_str()), std::atoi(part.c_str() + x + 1));
      }
    }
  }
  const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  const auto executor = MakeThreadPool(options.threads);
  std::vector<double> peaks(31);  // the first are of units that were not used for a while
  for (double& peak : peaks) peak = LivePeak(device, *executor);
  std::sort(peaks.begin(), peaks.end());
  fmt::print("{} threads {} peak of bf16 tiles {:.0f} GFLOP/s\n", device.ClassId(), options.threads,
             peaks[peaks.size() / 2]);
  Registry registry;
  AddGemm(registry);
#if defined(TILEWRIGHT_BENCH_VARIANTS)
  AddVariants(registry);
#endif
  for (const std::string& type_name : options.types) {
    const auto type = ParseDataType(type_name);
    if (!type) return 1;
    for (const auto& [n, k] : options.shapes) {
      for (const int m : options.m) RunCase({*type, m, n, k}, options, registry, device, *executor);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
