// Speed of the int8-activation GEMM kernels against the floor measured in the same run: the int8
// dot-product peak of the cores for many rows, the memory's read bandwidth for few. Cold rows
// rotate over copies of the weights beyond the last-level cache.
//
//   gemm_int8_bench [--threads N] [--types q4_1,q8_0 | all] [--m 1,512] [--shapes 960x576,...]
//   [--isa avx512vnni] [--seconds 0.1] [--hot] prints:
//   gemm_int8/q4_1/m=512,n=960,k=576/cold/avx512vnni  us median (min)  GOP/s  % of peak  GB/s
//   % of bandwidth, packs GB/s a worker

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/formats.h"
#include "core/random.h"
#include "ops/gemm/cpu/int8/register.h"
#include "tilewright/device.h"
#include "tilewright/features.h"

namespace tilewright {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Options {
  int threads = DefaultThreads();
  std::vector<std::string> types = {"q4_1", "q8_0", "q4_0", "q6_k"};
  std::vector<int> m = {1, 2, 4, 8, 16, 64, 512};
  std::vector<std::pair<int, int>> shapes = {  ///< n, k
      {960, 576},
      {576, 576},
      {3072, 576},
      {576, 1536},
      {49152, 576}};
  std::string isa = "avx512vnni";
  double seconds = 0.1;
  bool hot = false;
};

std::vector<std::string> Split(const char* text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

std::pair<int, int> ParseShape(const std::string& text) {
  const std::size_t x = text.find('x');
  if (x == std::string::npos) return {};
  return {std::atoi(text.c_str()), std::atoi(text.c_str() + x + 1)};
}

std::vector<std::string> AllTypes() {
  std::vector<std::string> types;
  for (const BlockFormat& format : kFormats) types.emplace_back(format.name);
  return types;
}

/// The features of an instruction set as kernel ids spell it, and of those below.
std::uint32_t FeaturesUpTo(std::string_view isa) {
  std::uint32_t features = 0;
  for (const FeatureName& feature : FeatureNames()) {
    if (isa == "scalar") break;
    features |= feature.bit;
    if (feature.name == isa) break;
  }
  return features;
}

struct Case {
  DataType type;
  int m, n, k;
};

/// GB of the file a second and worker that packing takes: the best of a few, which memory that is
/// touched for the first time does not slow down. 0 where it fails.
double PackRate(const Kernel& kernel, const std::vector<std::uint8_t>& file,
                const MatrixLayout& plain, void* target, Executor& executor) {
  double best = 1e30;
  for (int i = 0; i < 4; ++i) {
    const double start = Now();
    if (const Status status = kernel.PackB(file.data(), plain, target, {&executor}); !status) {
      fmt::print("{}\n", status.error().message);
      return 0;
    }
    best = std::min(best, Now() - start);
  }
  return static_cast<double>(file.size()) / best * 1e-9 / executor.workers();
}

struct Floors {
  double peak_gops, read_gb_s;
  std::int64_t llc_bytes;
};

void RunCase(Kernel& kernel, const Case& c, const Options& options, const Floors& floors,
             Executor& executor) {
  const MatrixLayout plain{
      .type = c.type, .order = Order::kColMajor, .rows = c.k, .cols = c.n, .ld = c.k};
  const std::size_t packed_bytes = kernel.PackedBytes(plain);
  const auto copies = static_cast<int>(
      options.hot
          ? 1
          : std::clamp<std::int64_t>(
                3 * floors.llc_bytes / static_cast<std::int64_t>(packed_bytes) + 1, 1, 400));
  const std::size_t stride = (packed_bytes + 4095) / 4096 * 4096;
  const Buffer packed = Buffer::Make(stride * static_cast<std::size_t>(copies));
  Random random(1);
  std::vector<std::uint8_t> file(BytesOf(c.type, c.k) * static_cast<std::size_t>(c.n));
  // Scales stay small and finite; powers of two, which start at 2^-128, do not become subnormal.
  const bool powers = FindFormat(c.type)->scale == Factor::kPowerOfTwo;
  for (auto& byte : file)
    byte = static_cast<std::uint8_t>((random.Next() & 0x3f) | (powers ? 0x40 : 0));
  const Stream stream{&executor};
  const double pack_gb_s = PackRate(kernel, file, plain, packed.data(), executor);
  if (pack_gb_s == 0) return;
  for (int i = 1; i < copies; ++i) {
    std::memcpy(packed.as<std::uint8_t>() + stride * static_cast<std::size_t>(i), packed.data(),
                packed_bytes);
  }
  std::vector<float> a(static_cast<std::size_t>(c.m) * static_cast<std::size_t>(c.k));
  for (float& value : a) value = static_cast<float>(random.Normal());
  std::vector<float> d(static_cast<std::size_t>(c.m) * static_cast<std::size_t>(c.n));
  GemmDesc problem;
  problem.m = c.m, problem.n = c.n, problem.k = c.k;
  const LaunchSpec spec{.kernel = &kernel};
  DeviceSpec device;
  device.cores = executor.workers();
  const Buffer scratch = Buffer::Make(kernel.PartialsBytes(problem, spec, device));
  Workspace workspace{.partials = scratch.data(), .partials_size = scratch.size()};
  GemmArgs args;
  args.a = a.data(), args.d = d.data();
  args.a_layout = {.rows = c.m, .cols = c.k, .ld = c.k};
  args.b_layout = plain;
  args.b_layout.pack = kernel.desc().pack_b;
  args.d_layout = {.rows = c.m, .cols = c.n, .ld = c.n};
  std::vector<double> times;
  const double deadline = Now() + options.seconds;
  for (int i = 0; Now() < deadline || i < 2 * copies + 5; ++i) {
    args.b = packed.as<std::uint8_t>() + stride * static_cast<std::size_t>(i % copies);
    const double start = Now();
    static_cast<void>(kernel.Launch(args, spec, workspace, stream));
    if (i >= 3) times.push_back(Now() - start);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double gops = 2e-9 * c.m * c.n * c.k / median;
  const double gb_s = static_cast<double>(packed_bytes) / median * 1e-9;
  fmt::print(
      "gemm_int8/{}/m={},n={},k={}/{}/{:<12} {:9.1f} us (min {:9.1f}) {:7.1f} GOP/s {:5.1f} % of "
      "peak {:6.1f} GB/s {:5.0f} % of bandwidth, packs {:4.1f} GB/s a worker\n",
      DataTypeName(c.type), c.m, c.n, c.k, options.hot ? "hot" : "cold", options.isa, median * 1e6,
      times.front() * 1e6, gops, 100 * gops / floors.peak_gops, gb_s, 100 * gb_s / floors.read_gb_s,
      pack_gb_s);
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--hot") {
      options.hot = true;
    } else if (i + 1 < argc) {
      const char* value = argv[++i];
      if (word == "--threads") options.threads = std::atoi(value);
      if (word == "--types") options.types = Split(value);
      if (word == "--types" && options.types.front() == "all") options.types = AllTypes();
      if (word == "--shapes") {
        options.shapes.clear();
        for (const std::string& part : Split(value)) options.shapes.push_back(ParseShape(part));
      }
      if (word == "--isa") options.isa = value;
      if (word == "--seconds") options.seconds = std::atof(value);
      if (word == "--m") {
        options.m.clear();
        for (const std::string& part : Split(value)) options.m.push_back(std::atoi(part.c_str()));
      }
    }
  }
  DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  // The peak is that of the instructions that the kernels have.
  device.features &= FeaturesUpTo(options.isa);
  const auto executor = MakeThreadPool(options.threads);
  Floors floors{1, MeasureReadBandwidth(*executor), device.llc_bytes};
  const auto peak = MeasurePeak(device, *executor, ArithmeticUnit::kI8);
  if (peak) floors.peak_gops = peak->giga_ops;
  fmt::print("{} threads {} peak {:.0f} GOP/s ({}), read {:.1f} GB/s, llc {} KiB\n",
             device.ClassId(), options.threads, floors.peak_gops,
             peak ? peak->instruction : "assumed", floors.read_gb_s, floors.llc_bytes >> 10);
  Registry registry;
  AddGemmInt8(registry);
  for (const std::string& type_name : options.types) {
    for (const auto& [n, k] : options.shapes) {
      const auto type = ParseDataType(type_name);
      if (!type) return 1;
      const int block = GetTypeInfo(*type).block_elements;
      const int depth = (k + block - 1) / block * block;
      for (Kernel* kernel : registry.kernels()) {
        const bool wanted = (kernel->desc().type_b & Bit(*type)) != 0 &&
                            kernel->desc().type_a == Bit(DataType::kF32) &&
                            kernel->name().find(".grouped") == std::string_view::npos &&
                            kernel->name().find("." + options.isa + ".") != std::string_view::npos;
        if (!wanted || !device.Has(kernel->info().features)) continue;
        for (const int m : options.m)
          RunCase(*kernel, {*type, m, n, depth}, options, floors, *executor);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
