#include "ops/gemm/tune/device_measurer.h"

#include <algorithm>
#include <exception>
#include <list>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/text.h"
#include "engine/tune/bound_launches.h"
#include "engine/tune/burst.h"
#include "engine/tune/trial_memory.h"
#include "ops/gemm/base/alignment.h"
#include "ops/gemm/tune/gemm_operands.h"

namespace tilewright {
namespace {

/// Memory of a GPU is aligned to 256 bytes; what is packed into one piece of it stays so.
std::size_t RoundUp(std::size_t value) { return (value + 255) / 256 * 256; }

/// Weights in one layout on the device, `count` copies behind each other; scales (V), where there
/// are any, follow each copy.
struct DeviceCopies {
  Pack pack = kPackPlain;
  DeviceMemory memory;
  std::size_t stride = 0, scales_at = 0;
  int count = 0;
  std::byte* At(int copy) const {
    return memory.as<std::byte>() + static_cast<std::size_t>(copy) * stride;
  }
};

class DeviceGemmMeasurer final : public GemmMeasurer {
 public:
  DeviceGemmMeasurer(Device& device, const MeasurerOptions& options)
      : device_(device),
        stream_(device.default_stream()),
        rotation_(options, device),
        operands_(options.trial.seed),
        workspace_(device),
        burst_(device, stream_),
        speed_(device.spec(), stream_.exec()) {}

  Status Prepare(const GemmDesc& problem) override {
    ready_ = false;
    bound_.Clear();
    const std::string weights = operands_.weight_key();
    Status made = operands_.Make(problem);
    if (operands_.weight_key() != weights) copies_.clear();
    if (made) made = CheckPromises();
    if (made) made = PlaceOperands();
    ready_ = made.has_value();
    return made;
  }

  Tuner::Outcome Check(const LaunchSpec& spec) override {
    // Compiling, loading and packing takes the host's time, not the device's.
    if (ready_) {
      if (const auto copies = CopiesFor(*spec.kernel)) static_cast<void>(BindSpec(spec, **copies));
    }
    return WithCost([&] { return Guarded([&] { return CheckAll(spec); }); });
  }
  Tuner::Outcome Time(const LaunchSpec& spec, int reps) override {
    return WithCost([&] { return Guarded([&] { return TimeAll(spec, reps); }); });
  }

 private:
  using Bound = BoundLaunches<GemmOp>::Bound;

  /// An exception that leaves a launch is the kernel's.
  template <class Measure>
  static Tuner::Outcome Guarded(const Measure& measure) {
    try {
      return measure();
    } catch (const std::exception& thrown) {
      return Failed(Verdict::kCrash, Format("Launch threw: {}", thrown.what()));
    } catch (...) {
      return Failed(Verdict::kCrash, "Launch threw");
    }
  }

  /// Trouble that is not the candidate's.
  static Tuner::Outcome Unmeasurable(const Error& error) {
    Tuner::Outcome outcome = Failed(Verdict::kError, error.message);
    outcome.skipped = true;
    return outcome;
  }

  /// A kernel may rely on what the problem promises, so operands without padding must keep it.
  Status CheckPromises() const {
    const GemmDesc& problem = operands_.problem();
    GemmArgs args = operands_.Args(Activations::kRandom);
    args.a = args.b = args.c = args.norm = nullptr;  // memory of the device, which is aligned
    GemmDesc kept = problem;
    PromiseAlignment(args, kept);
    for (const auto& [name, promised, have] :
         {std::tuple{"align_a", problem.align_a, kept.align_a},
          {"align_b", problem.align_b, kept.align_b},
          {"align_c", problem.align_c, kept.align_c},
          {"align_norm", problem.align_norm, kept.align_norm}}) {
      if (promised <= have) continue;
      return Fail(ErrorCode::kInvalidArgument,
                  Format("{} = {}: lines without padding are aligned to {} bytes only", name,
                         promised, 1 << have));
    }
    return {};
  }

  Status Place(const Buffer& host, DeviceMemory& memory) {
    memory = DeviceMemory();
    if (!host) return {};
    Result<DeviceMemory> made = device_.Allocate(host.size());
    if (!made) return Fail(made.error());
    memory = std::move(*made);
    return device_.Upload(memory.data(), host.data(), host.size(), stream_);
  }

  Status PlaceSpreads() {
    const std::span<const std::int32_t> words = operands_.spreads().words();
    spreads_ = DeviceMemory();
    if (words.empty()) return {};
    Result<DeviceMemory> made = device_.Allocate(words.size_bytes());
    if (!made) return Fail(made.error());
    spreads_ = std::move(*made);
    return device_.Upload(spreads_.data(), words.data(), words.size_bytes(), stream_);
  }
  /// `table` of the operands' spreads as it lies on the device.
  const std::int32_t* OnDevice(const std::int32_t* table) const {
    if (table == nullptr) return nullptr;
    return spreads_.as<std::int32_t>() + (table - operands_.spreads().words().data());
  }
  void MoveOffsets(GemmArgs& args) const {
    for (MatrixLayout* layout : {&args.a_layout, &args.c_layout, &args.d_layout})
      layout->offsets = OnDevice(layout->offsets);
  }

  Status PlaceOperands() {
    Status placed = Place(operands_.u(), u_);
    if (placed) placed = Place(operands_.c(), c_);
    if (placed) placed = Place(operands_.norm(), norm_);
    if (placed) placed = PlaceSpreads();
    for (const Activations kind : {Activations::kWholeNumbers, Activations::kRandom}) {
      if (placed) placed = Place(operands_.a(kind), a_[static_cast<int>(kind)]);
    }
    if (!placed) return placed;
    Result<DeviceMemory> d = device_.Allocate(operands_.result_bytes() + 2 * kGuard);
    if (!d) return Fail(d.error());
    d_ = std::move(*d);
    return device_.Synchronize(stream_);
  }

  /// The weights of `kernel`'s layout, as many copies as the policy asks for. The least recently
  /// used layouts are dropped to make room.
  Result<const DeviceCopies*> CopiesFor(const Kernel& kernel) {
    const Pack pack = LayoutFor(operands_.problem(), kernel);
    for (auto at = copies_.begin(); at != copies_.end(); ++at) {
      if (at->pack != pack) continue;
      copies_.splice(copies_.begin(), copies_, at);
      return &copies_.front();
    }
    const Result<std::size_t> bytes = PackedBytesFor(operands_, kernel);
    if (!bytes) return Fail(bytes.error());
    Buffer packed = Buffer::Make(*bytes);
    if (!packed)
      return Fail(ErrorCode::kOutOfMemory,
                  Format("no memory for packed weights: {} bytes", *bytes));
    if (Status s = PackFor(operands_, kernel, packed.data(), Stream{&stream_.exec()}); !s)
      return Fail(s.error());
    DeviceCopies copies;
    copies.pack = pack;
    copies.scales_at = RoundUp(*bytes);
    copies.stride = copies.scales_at + RoundUp(operands_.v().size());
    copies.count = rotation_.CountFor(copies.stride);
    const std::size_t total = copies.stride * static_cast<std::size_t>(copies.count);
    std::size_t held = total;
    for (const DeviceCopies& other : copies_) held += other.memory.size();
    while (!copies_.empty() && held > rotation_.max_bytes()) {
      held -= copies_.back().memory.size();
      copies_.pop_back();
    }
    Result<DeviceMemory> memory = device_.Allocate(total);
    if (!memory) return Fail(memory.error());
    copies.memory = std::move(*memory);
    if (Status s = Fill(copies, packed); !s) return Fail(s.error());
    copies_.push_front(std::move(copies));
    return &copies_.front();
  }

  Status Fill(const DeviceCopies& copies, const Buffer& packed) {
    const Buffer& v = operands_.v();
    Status s = device_.Upload(copies.At(0), packed.data(), packed.size(), stream_);
    if (s && v) s = device_.Upload(copies.At(0) + copies.scales_at, v.data(), v.size(), stream_);
    for (int copy = 1; s && copy < copies.count; ++copy)
      s = device_.Copy(copies.At(copy), copies.At(0), copies.stride, stream_);
    return s ? device_.Synchronize(stream_) : s;
  }

  GemmArgs Args(const DeviceCopies& copies, int copy, Activations kind) const {
    GemmArgs args = operands_.Args(kind);
    args.a = a_[static_cast<int>(kind)].data();
    args.u = u_.data();
    args.c = c_.data();
    args.norm = norm_.data();
    args.b = copies.At(copy);
    args.b_layout.pack = copies.pack;
    if (args.v != nullptr) args.v = copies.At(copy) + copies.scales_at;
    args.d = d_.as<std::byte>() + kGuard;
    MoveOffsets(args);
    args.a_layout.idxs = OnDevice(args.a_layout.idxs);
    return args;
  }

  /// What Bind would have made of the spec; its workspace is reserved.
  Result<Bound> BindSpec(const LaunchSpec& spec, const DeviceCopies& copies) {
    GemmDesc packed = operands_.problem();
    packed.pack_b = copies.pack;
    if (Status s =
            workspace_.Reserve(spec.kernel->WorkspaceFor(packed, spec, device_.spec()), stream_);
        !s)
      return Fail(s.error());
    return bound_.Bind(packed, spec, device_);
  }
  Status Launch(const GemmArgs& args, const LaunchSpec& spec, const BoundLaunch<GemmOp>* bound) {
    return BoundLaunches<GemmOp>::Launch(args, spec, bound, workspace_.get(), stream_);
  }

  Tuner::Outcome CheckAll(const LaunchSpec& spec) {
    if (!ready_) return Failed(Verdict::kError, "no problem was prepared");
    const Result<const DeviceCopies*> copies = CopiesFor(*spec.kernel);
    if (!copies) return Failed(copies.error());
    const Result<Bound> bound = BindSpec(spec, **copies);
    if (!bound) return Failed(bound.error());
    std::vector<std::byte> first, second;
    for (const Activations kind : operands_.Kinds()) {
      Tuner::Outcome bad = CheckLaunch(spec, **copies, bound->get(), kind, first);
      if (bad.verdict != Verdict::kOk || bad.skipped) return bad;
      bad = operands_.Judge(*spec.kernel, kind, first.data() + kGuard, stream_.exec());
      if (bad.verdict != Verdict::kOk) return bad;
    }
    if (!spec.kernel->info().deterministic) return {};
    if (Tuner::Outcome bad =
            CheckLaunch(spec, **copies, bound->get(), Activations::kRandom, second);
        bad.verdict != Verdict::kOk || bad.skipped)
      return bad;
    if (first == second) return {};
    return Failed(Verdict::kWrong,
                  "two runs differ, but the kernel declares that it is deterministic");
  }

  /// Launches into poisoned memory, and gives what is there then, guards included.
  Tuner::Outcome CheckLaunch(const LaunchSpec& spec, const DeviceCopies& copies,
                             const BoundLaunch<GemmOp>* bound, Activations kind,
                             std::vector<std::byte>& got) {
    const std::size_t size = operands_.result_bytes() + 2 * kGuard;
    Status s = workspace_.Poison(stream_);
    if (s) s = device_.Fill(d_.data(), 0xff, size, stream_);
    if (!s) return Unmeasurable(s.error());
    // The last copy: on the first, a kernel that reads beyond its weights would go unnoticed.
    s = Launch(Args(copies, copies.count - 1, kind), spec, bound);
    if (s) s = device_.Synchronize(stream_);
    if (!s) return Failed(s.error());
    got.resize(size);
    s = device_.Download(got.data(), d_.data(), size, stream_);
    if (s) s = device_.Synchronize(stream_);
    if (!s) return Unmeasurable(s.error());
    const auto intact = [&](std::size_t from) {
      return std::all_of(got.begin() + static_cast<std::ptrdiff_t>(from),
                         got.begin() + static_cast<std::ptrdiff_t>(from + kGuard),
                         [](std::byte byte) { return byte == std::byte{0xff}; });
    };
    if (intact(0) && intact(size - kGuard)) return {};
    return Failed(Verdict::kGuard, "wrote outside D");
  }

  Tuner::Outcome TimeAll(const LaunchSpec& spec, int reps) {
    if (!ready_) return Failed(Verdict::kError, "no problem was prepared");
    const Result<const DeviceCopies*> copies = CopiesFor(*spec.kernel);
    if (!copies) return Failed(copies.error());
    const Result<Bound> bound = BindSpec(spec, **copies);
    if (!bound) return Failed(bound.error());
    const DeviceCopies& weights = **copies;
    GemmArgs args = Args(weights, 0, Activations::kRandom);
    int next_launch = 0;  // the same spreads for every candidate
    const auto launch = [&]() -> Status {
      if (operands_.problem().num > 1) {
        operands_.PutMixture(next_launch++, args);
        MoveOffsets(args);
      }
      next_copy_ = next_copy_ + 1 < weights.count ? next_copy_ + 1 : 0;
      args.b = weights.At(next_copy_);
      if (args.v != nullptr) args.v = weights.At(next_copy_) + weights.scales_at;
      return Launch(args, spec, bound->get());
    };
    if (burst_.usable()) {
      return burst_.Time(
          {.reps = reps, .rotating_bytes = weights.stride, .cold_bytes = rotation_.BytesWanted()},
          launch);
    }
    return TimeLaunches(busy_, speed_, reps, launch,
                        [this] { return device_.Synchronize(stream_); });
  }

  static constexpr std::size_t kGuard = TrialMemory::kGuard;

  Device& device_;
  Stream stream_;
  RotatingCopies rotation_;
  GemmOperands operands_;
  bool ready_ = false;
  DeviceMemory u_, c_, d_, norm_, spreads_;
  DeviceMemory a_[2];               // by Activations
  std::list<DeviceCopies> copies_;  // last used first
  TrialWorkspace workspace_;
  BurstTimer burst_;
  BoundLaunches<GemmOp> bound_;
  int next_copy_ = 0;
  BusyWatch busy_;
  SpeedWatch speed_;
};

}  // namespace

std::unique_ptr<GemmMeasurer> MakeDeviceGemmMeasurer(Device& device,
                                                     const MeasurerOptions& options) {
  return std::make_unique<DeviceGemmMeasurer>(device, options);
}

}  // namespace tilewright
