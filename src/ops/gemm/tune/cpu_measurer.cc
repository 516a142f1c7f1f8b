#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "core/text.h"
#include "engine/tune/bound_launches.h"
#include "engine/tune/measuring.h"
#include "ops/gemm/tune/device_measurer.h"
#include "ops/gemm/tune/gemm_operands.h"
#include "tilewright/tune_gemm.h"

namespace tilewright {
namespace {

std::size_t RoundUp(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

// Weights in one layout, `count` copies behind each other; scales (V), where there are any, follow
// each copy.
struct Copies {
  Pack pack = kPackPlain;
  Buffer memory;
  std::size_t stride = 0, scales_at = 0;
  int count = 0;
};

class CpuGemmMeasurer final : public GemmMeasurer {
 public:
  CpuGemmMeasurer(Executor& executor, const MeasurerOptions& options)
      : executor_(executor),
        rotation_(options, executor),
        operands_(options.trial.seed),
        speed_(HostDevice().spec(), executor) {
    DeviceSpec spec = HostDevice().spec();
    spec.cores = executor.workers();
    device_ = MakeCpuDevice(std::move(spec), {.executor = &executor});
  }

  Status Prepare(const GemmDesc& problem) override {
    ready_ = false;
    bound_.Clear();
    // The cache is measured here, where that is not the cost of the candidate that is checked first.
    rotation_.BytesWanted();
    const std::string weights = operands_.weight_key();
    if (Status s = operands_.Make(problem); !s) {
      // Its weights may be half made.
      if (operands_.weight_key() != weights) copies_.clear();
      return s;
    }
    if (operands_.weight_key() != weights) copies_.clear();
    Result<GuardedBuffer> d = GuardedBuffer::Make(operands_.result_bytes(), "D");
    if (!d) return Fail(std::move(d.error()));
    d_ = std::move(*d);
    ready_ = true;
    return {};
  }

  Tuner::Outcome Check(const LaunchSpec& spec) override {
    return WithCost([&] { return CheckAll(spec); });
  }
  Tuner::Outcome Time(const LaunchSpec& spec, int reps) override {
    return WithCost([&] { return TimeAll(spec, reps); });
  }

 private:
  using Bound = BoundLaunches<GemmOp>::Bound;

  // The weights of `kernel`'s layout, as many copies as the policy asks for. The least recently
  // used layouts are dropped to make room.
  Result<const Copies*> CopiesFor(const Kernel& kernel) {
    const Pack pack = LayoutFor(operands_.problem(), kernel);
    for (auto at = copies_.begin(); at != copies_.end(); ++at) {
      if (at->pack != pack) continue;
      copies_.splice(copies_.begin(), copies_, at);
      return &copies_.front();
    }
    const Result<std::size_t> bytes = PackedBytesFor(operands_, kernel);
    if (!bytes) return Fail(bytes.error());
    const Buffer& v = operands_.v();
    Copies copies;
    copies.pack = pack;
    copies.scales_at = RoundUp(*bytes, 64);
    copies.stride = copies.scales_at + RoundUp(v.size(), 64);
    copies.count = rotation_.CountFor(copies.stride);
    const std::size_t total = copies.stride * static_cast<std::size_t>(copies.count);
    std::size_t held = total;
    for (const Copies& other : copies_) held += other.memory.size();
    while (!copies_.empty() && held > rotation_.max_bytes()) {
      held -= copies_.back().memory.size();
      copies_.pop_back();
    }
    copies.memory = Buffer::Make(total);
    if (!copies.memory)
      return Fail(ErrorCode::kOutOfMemory,
                  Format("no memory for {} copies of the weights", copies.count));
    if (Status s = PackFor(operands_, kernel, copies.memory.data(), Stream{&executor_}); !s)
      return Fail(std::move(s.error()));
    auto* first = copies.memory.as<char>();
    if (v) std::memcpy(first + copies.scales_at, v.data(), v.size());
    executor_.Run(copies.count - 1, [&copies, first](int task, int) {
      std::memcpy(first + static_cast<std::size_t>(task + 1) * copies.stride, first, copies.stride);
    });
    copies_.push_front(std::move(copies));
    return &copies_.front();
  }

  GemmArgs Args(const Copies& copies, int copy, Activations kind) const {
    GemmArgs args = operands_.Args(kind);
    const char* weights = copies.memory.as<char>() + static_cast<std::size_t>(copy) * copies.stride;
    args.b = weights;
    args.b_layout.pack = copies.pack;
    if (args.v != nullptr) args.v = weights + copies.scales_at;
    args.d = d_.data();
    return args;
  }

  Result<Bound> BindSpec(const LaunchSpec& spec, const Copies& copies) {
    GemmDesc packed = operands_.problem();
    packed.pack_b = copies.pack;
    return bound_.Bind(packed, spec, *device_);
  }
  Status Launch(const GemmArgs& args, const LaunchSpec& spec, const BoundLaunch<GemmOp>* bound) {
    return BoundLaunches<GemmOp>::Launch(args, spec, bound, workspace_, Stream{&executor_});
  }

  Status MakeWorkspace(const LaunchSpec& spec, const Copies& copies) {
    GemmDesc packed = operands_.problem();
    packed.pack_b = copies.pack;
    const std::size_t partials = spec.kernel->PartialsBytes(packed, spec, device_->spec());
    if (partials > partials_.size()) partials_ = Buffer::Make(partials);
    if (partials > partials_.size())
      return Fail(ErrorCode::kOutOfMemory, Format("no memory for partials: {} bytes", partials));
    constexpr std::size_t kBarriers = std::size_t{1} << 20;
    if (!barriers_) {
      barriers_ = Buffer::Make(kBarriers);
      if (!barriers_) return Fail(ErrorCode::kOutOfMemory, "no memory for barriers");
      std::memset(barriers_.data(), 0, kBarriers);
    }
    workspace_.barriers = barriers_.data(), workspace_.barriers_size = barriers_.size();
    workspace_.partials = partials_.data(), workspace_.partials_size = partials_.size();
    return {};
  }

  Tuner::Outcome CheckAll(const LaunchSpec& spec) {
    if (!ready_) return Failed(Verdict::kError, "no problem was prepared");
    const auto copies = CopiesFor(*spec.kernel);
    if (!copies) return Failed(copies.error());
    if (auto s = MakeWorkspace(spec, **copies); !s) return Failed(s.error());
    const Result<Bound> bound = BindSpec(spec, **copies);
    if (!bound) return Failed(bound.error());
    MeasureClock::time_point begin;
    for (const Activations kind : operands_.Kinds()) {
      begin = MeasureClock::now();
      Tuner::Outcome outcome = CheckOne(spec, bound->get(), **copies, kind);
      if (outcome.verdict != Verdict::kOk) return outcome;
    }
    // The repeat is for small batches of the same kernel; tens of milliseconds more for each
    // candidate would be half the tuning.
    constexpr double kRepeatBelowUs = 30000;
    if (!spec.kernel->info().deterministic || MicrosSince(begin) > kRepeatBelowUs) return {};
    const std::vector<char> first(static_cast<const char*>(d_.data()),
                                  static_cast<const char*>(d_.data()) + d_.size());
    if (Tuner::Outcome again = CheckLaunch(spec, bound->get(), **copies, Activations::kRandom);
        again.verdict != Verdict::kOk)
      return again;
    if (std::memcmp(first.data(), d_.data(), first.size()) != 0) {
      return Failed(Verdict::kWrong,
                    "two runs differ, but the kernel declares that it is deterministic");
    }
    return {};
  }

  // Launches into poisoned memory and checks everything except the values.
  Tuner::Outcome CheckLaunch(const LaunchSpec& spec, const BoundLaunch<GemmOp>* bound,
                             const Copies& copies, Activations kind) {
    d_.Poison();
    if (partials_) std::memset(partials_.data(), 0xff, partials_.size());
    // Uses the last copy: on the first, a kernel that reads beyond its weights would go unnoticed.
    const GemmArgs args = Args(copies, copies.count - 1, kind);
    if (auto s = Launch(args, spec, bound); !s) return Failed(s.error());
    if (!d_.Intact()) return Failed(Verdict::kGuard, "wrote outside D");
    return {};
  }

  Tuner::Outcome CheckOne(const LaunchSpec& spec, const BoundLaunch<GemmOp>* bound,
                          const Copies& copies, Activations kind) {
    if (Tuner::Outcome launched = CheckLaunch(spec, bound, copies, kind);
        launched.verdict != Verdict::kOk)
      return launched;
    return operands_.Judge(*spec.kernel, kind, d_.data(), executor_);
  }

  Tuner::Outcome TimeAll(const LaunchSpec& spec, int reps) {
    if (!ready_) return Failed(Verdict::kError, "no problem was prepared");
    const auto copies = CopiesFor(*spec.kernel);
    if (!copies) return Failed(copies.error());
    const Result<Bound> bound = BindSpec(spec, **copies);
    if (!bound) return Failed(bound.error());
    if (auto s = MakeWorkspace(spec, **copies); !s) return Failed(s.error());
    const Copies& weights = **copies;
    GemmArgs args = Args(weights, 0, Activations::kRandom);
    next_launch_ = 0;  // the same spreads for every candidate
    const auto launch = [&]() -> Status {
      next_copy_ = next_copy_ + 1 < weights.count ? next_copy_ + 1 : 0;
      const char* at =
          weights.memory.as<char>() + static_cast<std::size_t>(next_copy_) * weights.stride;
      args.b = at;
      if (args.v != nullptr) args.v = at + weights.scales_at;
      operands_.PutMixture(next_launch_++, args);
      return Launch(args, spec, bound->get());
    };
    return TimeLaunches(busy_, speed_, reps, launch, [] { return Status(); });
  }

  Executor& executor_;
  std::unique_ptr<Device> device_;  // its cores are the workers of the executor
  RotatingCopies rotation_;
  GemmOperands operands_;
  bool ready_ = false;
  Buffer partials_, barriers_;
  GuardedBuffer d_;
  Workspace workspace_;
  BoundLaunches<GemmOp> bound_;
  std::list<Copies> copies_;  // last used first
  int next_copy_ = 0;
  int next_launch_ = 0;
  BusyWatch busy_;
  SpeedWatch speed_;
};

}  // namespace

std::unique_ptr<GemmMeasurer> MakeCpuGemmMeasurer(Executor& executor,
                                                  const MeasurerOptions& options) {
  return std::make_unique<CpuGemmMeasurer>(executor, options);
}

template <>
std::unique_ptr<GemmMeasurer> MakeMeasurer<GemmOp>(Device& device, const MeasurerOptions& options) {
  if (device.host_accessible()) return MakeCpuGemmMeasurer(device.default_stream().exec(), options);
  return MakeDeviceGemmMeasurer(device, options);
}

template <>
LeastWork LeastWorkOf<GemmOp>(const GemmDesc& d, const TrialOptions&) {
  const std::int64_t columns = d.epilogue == Epilogue::kGatedSilu ? d.n / 2 : d.n;
  // At most one matrix for each row is read.
  const auto groups = static_cast<std::size_t>(std::clamp(d.num, 1, std::max(d.m, 1)));
  std::size_t bytes = BytesOf(d.type_a, std::int64_t{d.m} * d.k) +
                      groups * BytesOf(d.type_b, std::int64_t{d.n} * d.k) +
                      BytesOf(d.type_c, std::int64_t{d.m} * columns);
  if (d.scaling != Scaling::kOneZero) bytes += BytesOf(d.type_c, std::int64_t{d.m} * columns);
  if (d.prologue != Prologue::kNone) bytes += BytesOf(d.type_norm, d.k);
  return {.bytes = static_cast<double>(bytes), .operations = 2.0 * d.m * d.n * d.k};
}

}  // namespace tilewright
