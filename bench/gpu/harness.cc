#include "gpu/harness.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

#include "core/block_format.h"
#include "core/random.h"
#include "core/text.h"

namespace tilewright::gpu_check {
Gpu::Gpu(const std::string& libcuda, int ordinal)
    : driver(*Must(cuda::CudaDriver::Load(libcuda), "driver")),
      spec(Must(driver.Describe(ordinal), "device")),
      context(Must(cuda::Context::Retain(driver, ordinal), "context")),
      stream(Must(cuda::StreamHandle::Create(context), "stream")) {}

Guarded::Guarded(const Gpu& gpu, std::size_t bytes)
    : gpu_(gpu),
      bytes_(bytes),
      memory_(Must(cuda::DeviceBuffer::Allocate(gpu.context, bytes + 2 * kGuard), "memory")) {
  Must(memory_.Fill(0xff, gpu.stream), "fill");
  Must(gpu.stream.Synchronize(), "fill");
}

void Guarded::Upload(std::span<const std::byte> data) const {
  Must(memory_.Upload(data.first(std::min(data.size(), bytes_)), kGuard, gpu_.stream), "upload");
}

void Guarded::Poison() const { Must(memory_.Fill(0xff, gpu_.stream), "poison"); }

void Guarded::Zero() const {
  const std::vector<std::byte> zeros(bytes_);
  Upload(zeros);
}

std::vector<std::byte> Guarded::Download() const {
  std::vector<std::byte> data(bytes_);
  Must(memory_.Download(data, kGuard, gpu_.stream), "download");
  return data;
}

std::string Guarded::GuardTrouble(std::string_view what) const {
  std::vector<std::byte> band(kGuard);
  for (const bool after : {false, true}) {
    Must(memory_.Download(band, after ? kGuard + bytes_ : 0, gpu_.stream), "guard");
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (band[i] == std::byte{0xff}) continue;
      return after ? Format("{}: byte {} beyond its end was written", what, i)
                   : Format("{}: byte {} before its start was written", what, kGuard - i);
    }
  }
  return "";
}

LoadedKernel::LoadedKernel(const Gpu& gpu, const ArtifactData& artifact)
    : gpu_(gpu),
      artifact_(artifact),
      module_(Must(cuda::Module::Load(gpu.context, artifact.cubin), "module")),
      function_(Must(module_.Get(artifact.symbol), "function")) {
  const KernelLaunchShape& shape = artifact.launch;
  if (shape.dynamic_smem_bytes > 0) {
    Must(function_.AllowDynamicSmem(shape.dynamic_smem_bytes), "shared memory");
  }
  occupancy_ = Must(function_.Occupancy(static_cast<int>(shape.threads), shape.dynamic_smem_bytes),
                    "occupancy");
}

void LoadedKernel::Launch(cuda::LaunchResult launch) const {
  if (!launch) throw CheckError("the launcher refuses: " + launch.error().ToString());
  const KernelLaunchShape& compiled = artifact_.launch;
  // Less shared memory than was allowed for is what a launch of a short row asks for.
  if (launch->block != std::array<std::uint32_t, 3>{compiled.threads, 1, 1} ||
      launch->dynamic_smem_bytes > compiled.dynamic_smem_bytes) {
    throw CheckError(Format("a launch of {} threads, {} bytes: compiled for {}, {}",
                            launch->block[0], launch->dynamic_smem_bytes, compiled.threads,
                            compiled.dynamic_smem_bytes));
  }
  const auto encode = [&](const cuda::TensorMapDesc& desc,
                          std::span<std::byte, cuda::kTensorMapBytes> out) {
    return cuda::EncodeTensorMap(gpu_.driver, desc, out);
  };
  Must(cuda::EncodeMaps(*launch, encode), "tensor maps");
  if (Status ok = function_.Launch(*launch, gpu_.stream); !ok) {
    throw CheckError(Format("launch of {}x{}x{} CTAs of {} threads, {} bytes: {}", launch->grid[0],
                            launch->grid[1], launch->grid[2], launch->block[0],
                            launch->dynamic_smem_bytes, ok.error().message));
  }
}

Executor& Workers() {
  static const std::unique_ptr<Executor> pool =
      MakeThreadPool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  return *pool;
}

void ParallelFor(std::int64_t count, const std::function<void(std::int64_t)>& f) {
  std::atomic<std::int64_t> next{0};
  Workers().Run(Workers().workers(), [&](int, int) {
    for (std::int64_t i = next++; i < count; i = next++) f(i);
  });
}

std::vector<std::byte> RandomBytes(DataType type, std::int64_t count, double scale,
                                   std::uint64_t seed) {
  std::vector<std::byte> bytes(BytesOf(type, count));
  constexpr std::int64_t kPiece = 1 << 16;  // a multiple of every block
  ParallelFor((count + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    std::uint64_t state = seed + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(piece + 1);
    const std::int64_t begin = piece * kPiece;
    const std::int64_t size = std::min(kPiece, count - begin);
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& value : values) {
      const double unit = static_cast<double>(SplitMix64(state) >> 11) * 0x1p-53;
      value = static_cast<float>((2 * unit - 1) * scale);
    }
    Must(EncodeRow(type, values.data(), size, bytes.data() + BytesOf(type, begin)), "encode");
  });
  return bytes;
}

std::vector<std::byte> PeriodicBytes(DataType type, std::int64_t count, double scale,
                                     std::uint64_t seed) {
  constexpr std::int64_t kPeriod = (1 << 20) + 37 * 256;  // whole blocks, no power of two
  const std::vector<std::byte> period = RandomBytes(type, std::min(count, kPeriod), scale, seed);
  std::vector<std::byte> bytes(BytesOf(type, count));
  for (std::size_t at = 0; at < bytes.size(); at += period.size()) {
    std::memcpy(bytes.data() + at, period.data(), std::min(period.size(), bytes.size() - at));
  }
  return bytes;
}

std::vector<double> Decode(DataType type, std::span<const std::byte> bytes, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  constexpr std::int64_t kPiece = 1 << 16;
  ParallelFor((count + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t begin = piece * kPiece;
    Must(DecodeRow(type, bytes.data() + BytesOf(type, begin), std::min(kPiece, count - begin),
                   values.data() + begin),
         "decode");
  });
  return values;
}

double UnitRoundoff(DataType type) {
  switch (type) {
    case DataType::kBF16:
      return 0x1p-8;
    case DataType::kF16:
      return 0x1p-11;
    case DataType::kF8E4M3:
      return 0x1p-4;
    default:
      return 0x1p-24;
  }
}

Comparison::Comparison(DataType output, double accumulation, double typical)
    : unit_(UnitRoundoff(output)), accumulation_(accumulation), typical_(typical) {}

double Comparison::Limit() const {
  const double expected = typical_ * std::sqrt(magnitude2_);
  return unit_ + accumulation_ * (want2_ > 0 ? std::max(1.0, expected / std::sqrt(want2_)) : 1.0);
}

void Comparison::Add(double got, double want, double magnitude, std::int64_t row,
                     std::int64_t col) {
  ++compared_;
  // 2^-24 is the smallest f16; bf16 and f32 reach far below it.
  const double allowed = unit_ * std::abs(want) + accumulation_ * magnitude + 0x1p-24;
  const double error = std::abs(got - want);
  error2_ += error * error;
  want2_ += want * want;
  magnitude2_ += magnitude * magnitude;
  // Written so that NaN is wrong.
  if (!(error <= allowed)) {
    if (wrong_++ == 0) {
      first_ = Format("[{}][{}] is {:.9g}, must be {:.9g} +- {:.3g}", row, col, got, want, allowed);
    }
  }
  worst_ = std::isfinite(error) ? std::max(worst_, error / allowed)
                                : std::numeric_limits<double>::infinity();
}

double Comparison::RelL2() const {
  return want2_ > 0 ? std::sqrt(error2_ / want2_) : std::sqrt(error2_);
}

std::string Comparison::Trouble() const {
  if (wrong_ > 0) return Format("{} of {} elements are wrong: {}", wrong_, compared_, first_);
  if (compared_ == 0) return "nothing was compared";
  if (!(RelL2() <= Limit())) {
    return Format("relative L2 error {:.3g}, limit {:.3g}", RelL2(), Limit());
  }
  return "";
}

std::vector<std::byte> RunTwice(const Gpu& gpu, const Guarded& output,
                                std::span<const Guarded* const> others,
                                const std::function<void()>& reset,
                                const std::function<void()>& launch, CaseReport& report) {
  std::vector<std::byte> first;
  for (const bool again : {false, true}) {
    output.Poison();
    if (reset) reset();
    launch();
    Must(gpu.stream.Synchronize(), "kernel");
    std::vector<std::byte> data = output.Download();
    if (again) {
      report.repeatable = std::memcmp(first.data(), data.data(), data.size()) == 0;
    } else {
      first = std::move(data);
    }
  }
  if (!report.repeatable) report.Blame("the second run gave other bits");
  std::string guard = output.GuardTrouble("output");
  for (std::size_t i = 0; i < others.size() && guard.empty(); ++i) {
    guard = others[i]->GuardTrouble(Format("buffer {}", i));
  }
  if (!guard.empty()) report.Blame(guard);
  return first;
}

void Finish(const Comparison& comparison, CaseReport& report) {
  report.compared = comparison.compared();
  report.rel_l2 = comparison.RelL2();
  report.limit = comparison.Limit();
  report.worst = comparison.worst();
  const std::string wrong = comparison.Trouble();
  if (!wrong.empty()) report.Blame(wrong);
}

namespace {

constexpr int kReplays = 15;

double Median(std::vector<double>& samples) {
  std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
  return samples[samples.size() / 2];
}

double ElapsedUs(const Gpu& gpu, const cuda::Event& begin, const cuda::Event& end,
                 const std::function<void()>& work) {
  Must(begin.Record(gpu.stream), "event");
  work();
  Must(end.Record(gpu.stream), "event");
  Must(end.Synchronize(), "kernel");
  return Must(begin.MicrosecondsTo(end), "event");
}

}  // namespace

Replay::Replay(const Gpu& gpu, int sets, const std::function<void(int)>& launch)
    : gpu_(gpu),
      begin_(Must(cuda::Event::Create(gpu.context), "event")),
      end_(Must(cuda::Event::Create(gpu.context), "event")) {
  constexpr double kReplayUs = 3000;  // long enough that launching the graph does not show
  const auto round = [&](int count) {
    for (int i = 0; i < count; ++i) launch(i % sets);
  };
  round(3);
  Must(gpu.stream.Synchronize(), "kernel");
  const double once_us = ElapsedUs(gpu, begin_, end_, [&] { round(8); }) / 8;
  const int wanted = static_cast<int>(kReplayUs / std::max(once_us, 1.0));
  count_ = std::clamp(wanted / sets * sets, sets, std::max(500 / sets * sets, sets));
  graph_ = Must(cuda::Graph::Capture(gpu.context, gpu.stream,
                                     [&]() -> Status {
                                       round(count_);
                                       return {};
                                     }),
                "graph");
  how_ = sets > 1 ? Format("graph of {}, cold L2 over {} sets", count_, sets)
                  : Format("graph of {}, one set", count_);
  for (int i = 0; i < 3; ++i) (void)Us();
}

double Replay::Us() const {
  const auto launch = [&] { Must(graph_.Launch(gpu_.stream), "graph"); };
  return ElapsedUs(gpu_, begin_, end_, launch) / count_;
}

TimeReport TimeReplay(const Replay& replay) {
  double medians[2];
  for (double& median : medians) {
    std::vector<double> samples;
    for (int i = 0; i < kReplays; ++i) samples.push_back(replay.Us());
    median = Median(samples);
  }
  TimeReport report;
  report.us = medians[0];
  report.us_again = medians[1];
  report.how = replay.how();
  return report;
}

std::pair<double, double> TimeAlternately(const Replay& a, const Replay& b) {
  std::vector<double> of_a, of_b;
  for (int i = 0; i < kReplays; ++i) {
    of_a.push_back(a.Us());
    of_b.push_back(b.Us());
  }
  return {Median(of_a), Median(of_b)};
}

TimeReport TimeLaunches(const Gpu& gpu, int sets, const std::function<void(int)>& launch) {
  return TimeReplay(Replay(gpu, sets, launch));
}

int ColdSets(const Gpu& gpu, std::size_t bytes_each) {
  const auto wanted = 3 * static_cast<std::size_t>(gpu.spec.l2_bytes);
  return static_cast<int>(
      std::clamp<std::size_t>(wanted / std::max<std::size_t>(bytes_each, 1) + 1, 1, 256));
}

double MeasureCopyGbS(const Gpu& gpu) {
  constexpr std::size_t kBytes = std::size_t{1} << 31;
  const cuda::DeviceBuffer from = Must(cuda::DeviceBuffer::Allocate(gpu.context, kBytes), "memory");
  const cuda::DeviceBuffer to = Must(cuda::DeviceBuffer::Allocate(gpu.context, kBytes), "memory");
  const std::vector<std::byte> piece = RandomBytes(DataType::kF32, std::int64_t{1} << 22, 1, 12345);
  for (std::size_t at = 0; at < kBytes; at += piece.size()) {
    Must(from.Upload(piece, at, gpu.stream), "upload");
  }
  const cuda::Event begin = Must(cuda::Event::Create(gpu.context), "event");
  const cuda::Event end = Must(cuda::Event::Create(gpu.context), "event");
  std::vector<double> samples;
  for (int i = 0; i < 12; ++i) {
    const double us = ElapsedUs(gpu, begin, end, [&] {
      Must(gpu.driver.Check(gpu.driver.api().cuMemcpyDtoDAsync(to.address(), from.address(), kBytes,
                                                               gpu.stream.get()),
                            "cuMemcpyDtoDAsync"),
           "copy");
    });
    if (i >= 2) samples.push_back(us);
  }
  return 2.0 * kBytes / Median(samples) / 1e3;
}

}  // namespace tilewright::gpu_check
