#include "api/calibrate_gpu.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/text.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

/// A product with weights of bf16 on random operands, in memory of its own.
struct Product {
  std::optional<Plan<GemmOp>> plan;
  GemmArgs args;
  DeviceMemory a, b, d, partials, barriers;
  Workspace workspace;
};

/// Fills memory with random numbers, of magnitude 0.5 to 1 as bf16 and as f32: zeros would need
/// less power. A block of them is repeated.
Status FillRandom(Device& device, const DeviceMemory& memory) {
  constexpr std::size_t kBlock = std::size_t{8} << 20;
  std::vector<std::uint64_t> block(std::min(kBlock, memory.size()) / sizeof(std::uint64_t));
  Random random(1);
  // Of each: sign and fraction at random, the exponent that of [0.5, 1).
  for (std::uint64_t& four : block)
    four = (random.Next() & 0x807f807f807f807fu) | 0x3f003f003f003f00u;
  const Stream stream = device.default_stream();
  const std::size_t bytes = block.size() * sizeof(std::uint64_t);
  for (std::size_t at = 0; at < memory.size(); at += bytes) {
    Status sent = device.Upload(memory.as<std::byte>() + at, block.data(),
                                std::min(bytes, memory.size() - at), stream);
    if (!sent) return sent;
  }
  return device.Synchronize(stream);
}

/// x and the result are of `type`.
Result<Product> MakeProduct(Device& device, Kernels& kernels, const GemmShape& shape,
                            DataType type) {
  GemmDesc desc;
  desc.m = shape.m, desc.n = shape.n, desc.k = shape.k;
  desc.type_a = desc.type_c = type;
  desc.type_b = DataType::kBF16;
  desc.align_a = desc.align_b = desc.align_c = 4;
  FeasibleOptions options;
  options.providers = Bit(Provider::kOwn);
  const auto checked = Validate(desc);
  if (!checked) return Fail(checked.error());
  const auto choice = Choose(Feasible(*checked, kernels.gemm(), device.spec(), options), nullptr);
  if (!choice) return Fail(choice.error());
  Result<Plan<GemmOp>> plan = Bind(*choice, device);
  if (!plan) return Fail(plan.error());

  Product product;
  const auto allocate = [&](DeviceMemory& memory, std::size_t bytes) -> Status {
    Result<DeviceMemory> made = device.Allocate(bytes);
    if (!made) return Fail(made.error());
    memory = std::move(*made);
    return {};
  };
  const auto bytes = [](DataType of, std::int64_t rows, std::int64_t cols) {
    return BytesOf(of, rows * cols);
  };
  const WorkspaceSize needed = plan->workspace();
  for (const auto& [memory, size] : {std::pair{&product.a, bytes(type, shape.m, shape.k)},
                                     {&product.b, bytes(DataType::kBF16, shape.n, shape.k)},
                                     {&product.d, bytes(type, shape.m, shape.n)},
                                     {&product.partials, needed.partials},
                                     {&product.barriers, needed.barriers}}) {
    if (Status made = allocate(*memory, size); !made) return Fail(made.error());
  }
  for (const DeviceMemory* operand : {&product.a, &product.b}) {
    if (Status filled = FillRandom(device, *operand); !filled) return Fail(filled.error());
  }
  if (Status cleared =
          device.Fill(product.barriers.data(), 0, needed.barriers, device.default_stream());
      !cleared) {
    return Fail(cleared.error());
  }
  product.workspace = {.barriers = product.barriers.data(),
                       .barriers_size = needed.barriers,
                       .partials = product.partials.data(),
                       .partials_size = needed.partials};
  product.args.a = product.a.data(), product.args.b = product.b.data();
  product.args.d = product.d.data();
  product.args.a_layout = {type, Order::kRowMajor, shape.m, shape.k, shape.k};
  product.args.b_layout = {DataType::kBF16, Order::kColMajor, shape.k, shape.n, shape.k};
  product.args.d_layout = {type, Order::kRowMajor, shape.m, shape.n, shape.n};
  product.args.c_layout = product.args.d_layout;
  product.plan = std::move(*plan);
  return product;
}

/// Seconds of one launch: the shortest of several replays of `launches` of them.
Result<double> SecondsOf(Device& device, Product& product, int launches) {
  constexpr int kReplays = 4;
  const Stream stream = device.default_stream();
  const auto graph = device.Capture(stream, [&]() -> Status {
    for (int i = 0; i < launches; ++i) {
      Status ran = Run(*product.plan, product.args, product.workspace, stream);
      if (!ran) return ran;
    }
    return {};
  });
  if (!graph) return Fail(graph.error());
  double best = 0;
  for (int replay = 0; replay <= kReplays; ++replay) {
    const auto begin = std::chrono::steady_clock::now();
    Status done = (*graph)->Launch(stream);
    if (done) done = device.Synchronize(stream);
    if (!done) return Fail(done.error());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    // The first one loads code and raises clocks.
    if (replay == 1 || (replay > 1 && seconds.count() < best)) best = seconds.count();
  }
  return best / launches;
}

/// `measured` of 1e9 a second as the peak of a board that sustains this part of its own.
Result<double> PeakOf(const char* what, double measured, double peak, double sustained) {
  constexpr double kLeast = 0.01, kMost = 1.02;
  if (measured >= kLeast * peak && measured <= kMost * peak) return measured / sustained;
  return Fail(ErrorCode::kUnsupported,
              Format("{}: {:.4g} measured, must be {:.4g} to {:.4g} by the board's clocks", what,
                     measured, kLeast * peak, kMost * peak));
}

}  // namespace

Result<DeviceRates> CalibrateGpu(Device& device, Kernels& kernels) {
  const DeviceSpec& spec = device.spec();
  DeviceRates rates = spec;
  {
    // For f32 activations there are no tensor cores: what reads is a kernel for few rows.
    constexpr std::int32_t kDepth = 8192;
    const std::int64_t bytes = 16 * std::max<std::int64_t>(spec.l2_bytes, 1 << 20);
    const auto columns = static_cast<std::int32_t>(bytes / (2 * kDepth));
    Result<Product> reads =
        MakeProduct(device, kernels, {.m = 1, .n = columns, .k = kDepth, .num = 1}, DataType::kF32);
    if (!reads) return Fail(reads.error());
    const Result<double> seconds = SecondsOf(device, *reads, 10);
    if (!seconds) return Fail(seconds.error());
    const double read = static_cast<double>(reads->b.size()) / *seconds * 1e-9;
    const Result<double> peak = PeakOf("read_gb_s", read, spec.read_gb_s, kSustainedRead);
    if (!peak) return Fail(peak.error());
    rates.read_gb_s = *peak;
  }
  constexpr std::int32_t kSide = 4096;
  Result<Product> cube =
      MakeProduct(device, kernels, {.m = kSide, .n = kSide, .k = kSide, .num = 1}, DataType::kBF16);
  if (!cube) return Fail(cube.error());
  const Result<double> seconds = SecondsOf(device, *cube, 20);
  if (!seconds) return Fail(seconds.error());
  const double rate = 2.0 * kSide * kSide * kSide / *seconds * 1e-9;
  const Result<double> peak = PeakOf("bf16_gflop_s", rate, spec.bf16_gflop_s, kSustainedBf16);
  if (!peak) return Fail(peak.error());
  rates.bf16_gflop_s = *peak;
  return rates;
}

}  // namespace tilewright
