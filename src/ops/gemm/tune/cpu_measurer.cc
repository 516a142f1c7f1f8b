#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>

#include "core/block_format.h"
#include "core/text.h"
#include "engine/tune/measuring.h"
#include "ops/gemm/reference.h"
#include "ops/gemm/tune/operands.h"
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
      : executor_(executor), cold_(options, executor) {
    device_.cores = executor.workers();
  }

  Status Prepare(const GemmDesc& problem) override {
    if (problem.num > 1 || problem.striding_a == Striding::kIndexed ||
        problem.striding_c == Striding::kIndexed) {
      return Fail(
          ErrorCode::kUnsupported,
          Format("num = {}: grouped and indexed problems are not measured yet", problem.num));
    }
    if (problem.batch_dim != BatchDim::kM) {
      return Fail(ErrorCode::kUnsupported, "batch_dim = n: measure the transposed problem");
    }
    if (problem.pack_a != kPackPlain)
      return Fail(ErrorCode::kUnsupported, "pack_a: packed activations are not measured yet");
    const bool same_weights = ready_ && WeightKey(problem) == WeightKey(problem_);
    problem_ = problem;
    ready_ = false;
    if (!same_weights) {
      copies_.clear();
      if (auto s = MakeWeights(); !s) return s;
    }
    if (auto s = MakeActivations(); !s) return s;
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
  // What the weights depend on: all of the problem but the batch and what the caller does with the
  // result.
  static std::string WeightKey(const GemmDesc& problem) {
    GemmDesc w;
    w.m = 1, w.n = problem.n, w.k = problem.k;
    w.type_b = problem.type_b, w.type_v = problem.type_v, w.order_b = problem.order_b,
    w.quant_b = problem.quant_b;
    return KeyOf(w);
  }

  MatrixLayout PlainB() const {
    MatrixLayout b{problem_.type_b, problem_.order_b, problem_.k, problem_.n, problem_.k};
    if (problem_.order_b == Order::kRowMajor) b.ld = problem_.n;
    return b;
  }

  std::int64_t ScalesOfB() const {
    if (problem_.quant_b.type == QuantType::kNone) return 0;
    const std::int64_t group = problem_.quant_b.group;
    const std::int64_t cols =
        problem_.quant_b.type == QuantType::kB ? (problem_.n + group - 1) / group : problem_.n;
    return problem_.k / group * cols;
  }
  bool Pairs() const { return problem_.type_b == DataType::kU4; }

  Status MakeWeights() {
    const MatrixLayout b = PlainB();
    const bool columns = b.order == Order::kColMajor;
    plain_b_ =
        Buffer::Make(BytesOf(b.type, b.ld) * static_cast<std::size_t>(columns ? b.cols : b.rows));
    if (!plain_b_)
      return Fail(ErrorCode::kOutOfMemory, Format("no memory for {} x {} weights", b.rows, b.cols));
    if (auto s = FillWeights(b.type, columns ? b.cols : b.rows, b.ld, 7, plain_b_.data()); !s)
      return s;
    const std::int64_t scales = ScalesOfB();
    v_ = Buffer();
    if (scales == 0) return {};
    v_ = Buffer::Make(BytesOf(problem_.type_v, scales * (Pairs() ? 2 : 1)));
    if (!v_) return Fail(ErrorCode::kOutOfMemory, Format("no memory for {} scales", scales));
    return FillScales(problem_.type_v, scales, 0.02, Pairs(), 8, v_.data());
  }

  Status MakeActivations() {
    const GemmDesc& p = problem_;
    const bool rows = p.order_a == Order::kRowMajor;
    const std::int64_t lines = rows ? p.m : p.k, length = rows ? p.k : p.m;
    const std::int64_t d_cols = p.epilogue == Epilogue::kGatedSilu ? p.n / 2 : p.n;
    const std::size_t d_bytes = BytesOf(p.type_c, static_cast<std::int64_t>(p.m) * d_cols);
    for (int kind = 0; kind < 2; ++kind) {
      a_[kind] = Buffer::Make(BytesOf(p.type_a, length) * static_cast<std::size_t>(lines));
      if (!a_[kind])
        return Fail(ErrorCode::kOutOfMemory, Format("no memory for {} x {} activations", p.m, p.k));
      if (auto s = FillActivations(p.type_a, lines, length, static_cast<Activations>(kind), 9,
                                   a_[kind].data());
          !s)
        return s;
    }
    u_ = Buffer();
    if (p.quant_a.type != QuantType::kNone) {
      const std::int64_t count = static_cast<std::int64_t>(p.m) * (p.k / p.quant_a.group);
      u_ = Buffer::Make(BytesOf(p.type_u, count));
      if (!u_) return Fail(ErrorCode::kOutOfMemory, Format("no memory for {} scales", count));
      if (auto s = FillScales(p.type_u, count, 1.0, false, 10, u_.data()); !s) return s;
    }
    auto d = GuardedBuffer::Make(d_bytes, "D");
    if (!d) return Fail(std::move(d.error()));
    d_ = std::move(*d);
    c_ = Buffer();
    if (p.scaling == Scaling::kOneZero) return {};
    c_ = Buffer::Make(d_bytes);
    if (!c_) return Fail(ErrorCode::kOutOfMemory, Format("no memory for C: {} bytes", d_bytes));
    return FillActivations(p.type_c, p.m, d_cols, Activations::kRandom, 11, c_.data());
  }

  // The weights of `kernel`'s layout, as many copies as the policy asks for. The least recently
  // used layouts are dropped to make room.
  Result<const Copies*> CopiesFor(const Kernel& kernel) {
    const Pack pack = problem_.pack_b == kPackAny ? kernel.desc().pack_b : problem_.pack_b;
    for (auto at = copies_.begin(); at != copies_.end(); ++at) {
      if (at->pack != pack) continue;
      copies_.splice(copies_.begin(), copies_, at);
      return &copies_.front();
    }
    const MatrixLayout b = PlainB();
    const std::size_t bytes = pack == kPackPlain ? plain_b_.size() : kernel.PackedBytes(b);
    if (bytes == 0)
      return Fail(ErrorCode::kInternal,
                  Format("{} gives no size for packed weights", kernel.name()));
    Copies copies;
    copies.pack = pack;
    copies.scales_at = RoundUp(bytes, 64);
    copies.stride = copies.scales_at + RoundUp(v_.size(), 64);
    copies.count = cold_.CountFor(copies.stride);
    const std::size_t total = copies.stride * static_cast<std::size_t>(copies.count);
    std::size_t held = total;
    for (const Copies& other : copies_) held += other.memory.size();
    while (!copies_.empty() && held > cold_.max_bytes()) {
      held -= copies_.back().memory.size();
      copies_.pop_back();
    }
    copies.memory = Buffer::Make(total);
    if (!copies.memory)
      return Fail(ErrorCode::kOutOfMemory,
                  Format("no memory for {} copies of the weights", copies.count));
    if (pack == kPackPlain) {
      std::memcpy(copies.memory.data(), plain_b_.data(), bytes);
    } else if (auto s = kernel.PackB(plain_b_.data(), b, copies.memory.data(), Stream{&executor_});
               !s) {
      return Fail(std::move(s.error()));
    }
    auto* first = copies.memory.as<char>();
    if (v_) std::memcpy(first + copies.scales_at, v_.data(), v_.size());
    executor_.Run(copies.count - 1, [&copies, first](int task, int) {
      std::memcpy(first + static_cast<std::size_t>(task + 1) * copies.stride, first, copies.stride);
    });
    copies_.push_front(std::move(copies));
    return &copies_.front();
  }

  GemmArgs Args(const Copies& copies, int copy, Activations kind) const {
    const GemmDesc& p = problem_;
    GemmArgs args;
    args.alpha = p.scaling == Scaling::kAny ? -0.5f : 1.0f;
    args.beta =
        p.scaling == Scaling::kOneZero ? 0.0f : (p.scaling == Scaling::kOneOne ? 1.0f : 0.25f);
    args.a = a_[static_cast<int>(kind)].data();
    args.a_layout = {p.type_a, p.order_a, p.m, p.k, p.order_a == Order::kRowMajor ? p.k : p.m};
    if (u_) {
      args.u = u_.data();
      args.u_layout = {p.type_u, Order::kRowMajor, p.m, p.k / p.quant_a.group,
                       p.k / p.quant_a.group};
    }
    const char* weights = copies.memory.as<char>() + static_cast<std::size_t>(copy) * copies.stride;
    args.b = weights;
    args.b_layout = PlainB();
    args.b_layout.pack = copies.pack;
    if (v_) {
      const std::int32_t groups = p.k / p.quant_b.group,
                         width = static_cast<std::int32_t>(ScalesOfB() / groups);
      args.v = weights + copies.scales_at;
      args.v_layout = {p.type_v, Order::kRowMajor, groups, width, width};
    }
    const std::int32_t d_cols = p.epilogue == Epilogue::kGatedSilu ? p.n / 2 : p.n;
    args.d_layout = {p.type_c, p.order_c, p.m, d_cols,
                     p.order_c == Order::kRowMajor ? d_cols : p.m};
    args.c_layout = args.d_layout;
    args.c = c_ ? c_.data() : nullptr;
    args.d = d_.data();
    return args;
  }

  Status MakeWorkspace(const LaunchSpec& spec, const Copies& copies) {
    GemmDesc packed = problem_;
    packed.pack_b = copies.pack;
    const std::size_t partials = spec.kernel->PartialsBytes(packed, spec, device_);
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
    MeasureClock::time_point begin;
    for (const Activations kind : {Activations::kWholeNumbers, Activations::kRandom}) {
      begin = MeasureClock::now();
      Tuner::Outcome outcome = CheckOne(spec, **copies, kind);
      if (outcome.verdict != Verdict::kOk) return outcome;
    }
    // The repeat is for small batches of the same kernel; tens of milliseconds more for each
    // candidate would be half the tuning.
    constexpr double kRepeatBelowUs = 30000;
    if (!spec.kernel->info().deterministic || MicrosSince(begin) > kRepeatBelowUs) return {};
    const std::vector<char> first(static_cast<const char*>(d_.data()),
                                  static_cast<const char*>(d_.data()) + d_.size());
    if (Tuner::Outcome again = CheckLaunch(spec, **copies, Activations::kRandom);
        again.verdict != Verdict::kOk)
      return again;
    if (std::memcmp(first.data(), d_.data(), first.size()) != 0) {
      return Failed(Verdict::kWrong,
                    "two runs differ, but the kernel declares that it is deterministic");
    }
    return {};
  }

  // Launches into poisoned memory and checks everything except the values.
  Tuner::Outcome CheckLaunch(const LaunchSpec& spec, const Copies& copies, Activations kind) {
    d_.Poison();
    if (partials_) std::memset(partials_.data(), 0xff, partials_.size());
    // Uses the last copy: on the first, a kernel that reads beyond its weights would go unnoticed.
    const GemmArgs args = Args(copies, copies.count - 1, kind);
    if (auto s = spec.kernel->Launch(args, spec, workspace_, Stream{&executor_}); !s) {
      return Failed(s.error());
    }
    if (!d_.Intact()) return Failed(Verdict::kGuard, "wrote outside D");
    return {};
  }

  Tuner::Outcome CheckOne(const LaunchSpec& spec, const Copies& copies, Activations kind) {
    if (Tuner::Outcome launched = CheckLaunch(spec, copies, kind); launched.verdict != Verdict::kOk)
      return launched;
    GemmArgs args = Args(copies, copies.count - 1, kind);
    if (auto missing = Unwritten(args); !missing.empty()) return Failed(Verdict::kWrong, missing);
    args.b = plain_b_.data();
    args.b_layout = PlainB();
    if (v_) args.v = v_.data();
    GemmDesc plain = problem_;
    plain.pack_b = kPackPlain;
    GemmCheck check;
    check.executor = &executor_;
    // Scaled activations are rounded after scaling, so whole numbers stay whole only without
    // scales.
    const bool exact =
        kind == Activations::kWholeNumbers && problem_.quant_a.type == QuantType::kNone;
    check.activations = exact ? Precision::kF32 : spec.kernel->desc().activations;
    constexpr double kWholeCheck = 4e6;  // products; beyond, rows and columns are picked
    if (static_cast<double>(problem_.m) * problem_.n * problem_.k > kWholeCheck)
      check.max_rows = 12, check.max_cols = 96;
    const auto error = CheckGemm(args, plain, check);
    if (!error) return Failed(error.error());
    if (error->worst <= 1) return {};
    return Failed(Verdict::kWrong,
                  Format("d[{}, {}] = {} where the oracle has {}: {:.3g} times the tolerance",
                         error->row, error->col, error->got, error->want, error->worst));
  }

  // Finite operands give finite results, so what is still NaN was never written.
  std::string Unwritten(const GemmArgs& args) const {
    const std::int64_t length = args.d_layout.ld;
    const std::int64_t lines =
        args.d_layout.order == Order::kRowMajor ? args.d_layout.rows : args.d_layout.cols;
    std::vector<float> line(static_cast<std::size_t>(length));
    const auto* bytes = static_cast<const char*>(args.d);
    for (std::int64_t i = 0; i < lines; ++i) {
      const auto* at = bytes + static_cast<std::size_t>(i) * BytesOf(args.d_layout.type, length);
      if (!DecodeRow(args.d_layout.type, at, length, line.data())) return "D cannot be decoded";
      for (std::int64_t j = 0; j < length; ++j) {
        const float value = line[static_cast<std::size_t>(j)];
        if (std::isfinite(value)) continue;
        return Format("line {} element {} of D is {}", i, j, value);
      }
    }
    return {};
  }

  Tuner::Outcome TimeAll(const LaunchSpec& spec, int reps) {
    if (!ready_) return Failed(Verdict::kError, "no problem was prepared");
    const auto copies = CopiesFor(*spec.kernel);
    if (!copies) return Failed(copies.error());
    if (auto s = MakeWorkspace(spec, **copies); !s) return Failed(s.error());
    const Copies& weights = **copies;
    const Stream stream{&executor_};
    GemmArgs args = Args(weights, 0, Activations::kRandom);
    const auto launch = [&]() -> Status {
      next_copy_ = next_copy_ + 1 < weights.count ? next_copy_ + 1 : 0;
      const char* at =
          weights.memory.as<char>() + static_cast<std::size_t>(next_copy_) * weights.stride;
      args.b = at;
      if (v_) args.v = at + weights.scales_at;
      return spec.kernel->Launch(args, spec, workspace_, stream);
    };
    return TimeLaunches(busy_, reps, launch, [] { return Status(); });
  }

  Executor& executor_;
  DeviceSpec device_;  // sizes the workspaces: its cores are the workers of the executor
  ColdCopies cold_;
  GemmDesc problem_;
  bool ready_ = false;
  Buffer plain_b_, v_, u_, c_, partials_, barriers_;
  Buffer a_[2];  // by Activations
  GuardedBuffer d_;
  Workspace workspace_;
  std::list<Copies> copies_;  // last used first
  int next_copy_ = 0;
  BusyWatch busy_;
};

}  // namespace

std::unique_ptr<GemmMeasurer> MakeCpuGemmMeasurer(Executor& executor,
                                                  const MeasurerOptions& options) {
  return std::make_unique<CpuGemmMeasurer>(executor, options);
}

template <>
std::unique_ptr<GemmMeasurer> MakeMeasurer<GemmOp>(Device& device, const MeasurerOptions& options) {
  return MakeCpuGemmMeasurer(device.default_stream().exec(), options);
}

}  // namespace tilewright
