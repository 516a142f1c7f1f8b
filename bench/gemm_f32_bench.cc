// Speed of every registered GEMM kernel that a problem allows, against the floor measured in the
// same run: the f32 fma peak of the cores (a loop over registers) for many rows, the memory's read
// bandwidth for few. Cold rows rotate over copies of the weights beyond three times the last-level
// cache; hot ones use a single copy.
//
// --cpu-time (one thread) counts the thread's own processor time: what a busy machine still
// measures well.
//
//   gemm_f32_bench [--threads N] [--type q4_1] [--m 1,512] [--n 3072] [--k 576] [--filter avx512]
//   [--seconds 0.2] [--cold] [--cpu-time]
// prints: gemm/q4_1/m=512,n=3072,k=576/hot/KERNEL  us median (min)  GFLOP/s  % of peak  GB/s  % of
// bandwidth  predicted us

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string>
#include <vector>

#include "core/random.h"
#include "ops/gemm/register.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

bool g_cpu_time = false;

double Now() {
  timespec now{};
  clock_gettime(g_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Options {
  int threads = DefaultThreads();
  DataType type = DataType::kF32;
  std::vector<int> m = {1, 3, 4, 16, 64, 512};
  int n = 3072, k = 576;
  std::string filter;
  double seconds = 0.2;
  bool cold = false;
};

struct Floor {
  double gflop_s = 0, gb_s = 0;
};

void FillRandom(Buffer& buffer, DataType type, std::uint64_t seed) {
  Random random(seed);
  if (type == DataType::kF32) {
    for (std::size_t i = 0; i < buffer.size() / 4; ++i)
      buffer.as<float>()[i] = static_cast<float>(random.Uniform(-1, 1));
    return;
  }
  // Bytes below 0x30 are small finite numbers wherever a format has a float.
  for (std::size_t i = 0; i < buffer.size(); ++i)
    buffer.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.Next() % 0x30);
}

void Measure(Kernel& kernel, const Options& o, int m, const DeviceSpec& device, Executor& executor,
             const Floor& floor) {
  GemmDesc d;
  d.m = m, d.n = o.n, d.k = o.k;
  d.type_b = o.type;
  d.pack_b = kernel.desc().pack_b;
  if (kernel.IsFeasible(d) || kernel.CheckDevice(device)) return;

  MatrixLayout b{.type = o.type, .order = Order::kColMajor, .rows = o.k, .cols = o.n, .ld = o.k};
  const std::size_t plain_bytes = BytesOf(o.type, static_cast<std::int64_t>(o.k) * o.n);
  Buffer plain = Buffer::Make(plain_bytes),
         a = Buffer::Make(static_cast<std::size_t>(m) * static_cast<std::size_t>(o.k) * 4),
         c = Buffer::Make(static_cast<std::size_t>(m) * static_cast<std::size_t>(o.n) * 4);
  FillRandom(plain, o.type, 1);
  FillRandom(a, DataType::kF32, 2);
  const std::size_t bytes = d.pack_b == kPackPlain ? plain_bytes : kernel.PackedBytes(b);
  const std::size_t copies =
      o.cold ? std::min<std::size_t>(64, 3 * static_cast<std::size_t>(device.llc_bytes) / bytes + 1)
             : 1;
  std::vector<Buffer> weights;
  for (std::size_t i = 0; i < copies; ++i) {
    weights.push_back(Buffer::Make(bytes));
    if (d.pack_b == kPackPlain) {
      std::copy_n(plain.as<char>(), bytes, weights.back().as<char>());
    } else if (!kernel.PackB(plain.data(), b, weights.back().data(), Stream{&executor})) {
      return;
    }
  }
  LaunchSpec spec;
  spec.kernel = &kernel;
  Buffer partials = Buffer::Make(std::max<std::size_t>(64, kernel.PartialsBytes(d, spec, device)));
  Workspace workspace;
  workspace.partials = partials.data(), workspace.partials_size = partials.size();
  GemmArgs args;
  args.a = a.data(), args.d = c.data();
  args.a_layout = {.rows = m, .cols = o.k, .ld = o.k};
  args.d_layout = {.rows = m, .cols = o.n, .ld = o.n};
  args.b_layout = b;
  args.b_layout.pack = d.pack_b;

  std::vector<double> times;
  const double begin = Now();
  for (std::size_t i = 0; times.size() < 5 || Now() - begin < o.seconds; ++i) {
    args.b = weights[i % copies].data();
    const double start = Now();
    const Status ok = kernel.Launch(args, spec, workspace, Stream{&executor});
    const double stop = Now();
    if (!ok) {
      fmt::print("{}: {}\n", kernel.name(), ok.error().message);
      return;
    }
    if (i >= 2) times.push_back(stop - start);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double gflop_s = 2.0 * m * o.n * o.k / median * 1e-9,
               gb_s = static_cast<double>(bytes) / median * 1e-9;
  fmt::print(
      "gemm/{}/m={},n={},k={}/{}/{:<46} {:9.1f} us ({:9.1f})  {:7.1f} GFLOP/s {:4.0f} %  {:6.1f} "
      "GB/s {:4.0f} %  predicted {:9.1f}\n",
      DataTypeName(o.type), m, o.n, o.k, o.cold ? "cold" : "hot", kernel.name(), median * 1e6,
      times.front() * 1e6, gflop_s, 100 * gflop_s / floor.gflop_s, gb_s, 100 * gb_s / floor.gb_s,
      kernel.EstimateUs(d, spec, device));
}

std::vector<int> Numbers(const char* text) {
  std::vector<int> numbers;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');)
    numbers.push_back(std::atoi(part.c_str()));
  return numbers;
}

int Main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--cold") {
      o.cold = true;
      continue;
    }
    if (name == "--cpu-time") {
      g_cpu_time = true;
      o.threads = 1;
      continue;
    }
    if (i + 1 == argc) break;
    const char* value = argv[++i];
    if (name == "--threads") o.threads = std::atoi(value);
    if (name == "--type") o.type = ParseDataType(value).value_or(DataType::kF32);
    if (name == "--m") o.m = Numbers(value);
    if (name == "--n") o.n = std::atoi(value);
    if (name == "--k") o.k = std::atoi(value);
    if (name == "--filter") o.filter = value;
    if (name == "--seconds") o.seconds = std::atof(value);
  }
  const Result<DeviceSpec> detected = DetectCpu();
  if (!detected) {
    fmt::print(stderr, "{}\n", detected.error().message);
    return 2;
  }
  DeviceSpec device = *detected;
  const auto executor = MakeThreadPool(o.threads);
  Floor floor;
  device.cores = o.threads;
  static_cast<DeviceRates&>(device) = CalibrateRates(device, *executor);
  floor.gflop_s = device.f32_gflop_s * o.threads;
  floor.gb_s = device.read_gb_s;
  fmt::print("{}: {} threads, fma peak {:.1f} GFLOP/s, read {:.1f} GB/s\n", device.ClassId(),
             o.threads, floor.gflop_s, floor.gb_s);
  Registry registry;
  AddGemm(registry);
  for (const int m : o.m) {
    for (Kernel* kernel : registry.kernels()) {
      if (kernel->info().reference && o.filter.empty()) continue;
      if (std::string(kernel->name()).find(o.filter) != std::string::npos)
        Measure(*kernel, o, m, device, *executor, floor);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
