// Tuning through the public API, for every operation: kernels of one's own join the race, what is
// measured decides in the next context, and what is wrong is out.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "device/fake/fake_device.h"
#include "graph/fake/async_kernels.h"
#include "tilewright/tilewright.h"
#include "tilewright/tune.h"

namespace tilewright {
namespace {

/// By norms of the user's own, all together.
std::atomic<long> g_computations{0};

/// A norm of the user's own: the library's scalar one, and whatever a test adds.
class OwnNorm final : public norm::Kernel {
 public:
  using Computation = std::function<Status(const norm::Args&, const std::function<Status()>&)>;

  OwnNorm(std::string name, double predicted_us, Computation computation)
      : norm::Kernel(Info(std::move(name))),
        predicted_us_(predicted_us),
        computation_(std::move(computation)),
        library_(MakeCpuKernels()) {}

  std::optional<Rejection> IsFeasible(const norm::Desc& desc) const override {
    return Scalar().IsFeasible(desc);
  }
  double EstimateUs(const norm::Desc&, const Spec&, const DeviceSpec&) const override {
    return predicted_us_;
  }
  Status Launch(const norm::Args& args, const Spec& spec, Workspace& workspace,
                Stream stream) override {
    return computation_(args, [&] {
      ++g_computations;
      return Scalar().Launch(args, spec, workspace, stream);
    });
  }

 private:
  static KernelInfo Info(std::string name) {
    KernelInfo info;
    info.name = std::move(name);
    info.fingerprint = "1";
    info.provider = Provider::kUser;
    return info;
  }
  norm::Kernel& Scalar() const { return *library_->of<norm::Op>().Find("norm.rms.f32.scalar"); }

  double predicted_us_;
  Computation computation_;
  std::unique_ptr<Kernels> library_;
};

Status Right(const norm::Args&, const std::function<Status()>& compute) { return compute(); }
/// Right, in place as well, and as slow as two.
Status Slow(const norm::Args& args, const std::function<Status()>& compute) {
  auto* const in = args.in.as<float>();
  const std::vector<float> input(in, in + args.in.elements());
  if (Status status = compute(); !status) return status;
  if (args.in.data == args.out.data) std::copy(input.begin(), input.end(), in);
  return compute();
}
float& Out(const norm::Args& args, std::int64_t index) { return args.out.as<float>()[index]; }

/// Measures as another does, but what machines that do something else as well make uncertain: takes
/// every sample for a quiet one, and the user's kernels to take 10 us a computation.
template <class Op>
class Undisturbed final : public Measurer<Op> {
 public:
  explicit Undisturbed(std::unique_ptr<Measurer<Op>> by) : by_(std::move(by)) {}
  Status Prepare(const typename Op::Desc& problem) override { return by_->Prepare(problem); }
  Tuner::Outcome Check(const typename Op::Spec& spec) override { return by_->Check(spec); }
  Tuner::Outcome Time(const typename Op::Spec& spec, int reps) override {
    ++timings;
    const long before = g_computations;
    Tuner::Outcome outcome = by_->Time(spec, reps);
    const long computed = g_computations - before;
    if (computed > 0) outcome.us = 10.0 * static_cast<double>(computed) / (reps > 1 ? reps + 1 : 1);
    outcome.disturbed = false;
    return outcome;
  }
  int timings = 0;

 private:
  std::unique_ptr<Measurer<Op>> by_;
};

class TuningTest : public testing::Test {
 protected:
  TuningTest() {
    char name[] = "/tmp/tilewright-tuning-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~TuningTest() override { std::filesystem::remove_all(folder_); }

  /// One user's process: a context with the user's kernels.
  std::unique_ptr<Context> Start(std::uint32_t providers = FeasibleOptions{}.providers) const {
    ContextOptions options;
    options.threads = 2;
    options.cache_dir = folder_;
    options.policy = MeasurePolicy::kWarm;
    options.providers = providers;
    auto context = Context::Create(options);
    EXPECT_TRUE(context) << context.error().message;
    for (const auto& [kernel, computation] : own_) {
      EXPECT_TRUE((*context)->kernels().of<norm::Op>().Add(
          std::make_unique<OwnNorm>(kernel.first, kernel.second, computation)));
    }
    return std::move(*context);
  }
  void Own(std::string name, double predicted_us, OwnNorm::Computation computation) {
    own_.emplace_back(std::pair(std::move(name), predicted_us), std::move(computation));
  }

  /// Until the evidence suffices; a busy machine may take several sessions.
  template <class Op>
  TuneReport TuneUntilDecided(Context& context, const typename Op::Desc& desc) {
    TuneOptions options;
    options.feasible = context.feasible_options();
    options.scope = context.scope();
    options.tuner.sample_us = 100;
    const TuneProblemOf<Op> problems[] = {{desc, 1}};
    TuneReport last;
    for (int session = 0; session < 5 && (session == 0 || !last.rows[0].conclusive); ++session) {
      MeasurerOptions measure;
      measure.policy = context.scope().policy;
      Undisturbed<Op> measurer(MakeMeasurer<Op>(context.device(), measure));
      auto report = Tune(problems, context.kernels().of<Op>(), context.device_spec(),
                         context.records(), measurer, options);
      EXPECT_TRUE(report) << report.error().message;
      last = std::move(*report);
    }
    return last;
  }

  template <class Op>
  Candidates<Op> Look(const Context& context, const typename Op::Desc& desc) const {
    return Feasible(*Validate(desc), context.kernels().of<Op>(), context.device_spec(),
                    context.feasible_options());
  }

  std::string folder_;
  std::vector<std::pair<std::pair<std::string, double>, OwnNorm::Computation>> own_;
};

/// What a dispatch of `context` binds to a norm of `rows` x `cols`.
std::pair<std::string, std::string> BoundNorm(Context& context, std::int64_t rows,
                                              std::int64_t cols) {
  std::vector<float> in(static_cast<std::size_t>(rows * cols), 1.0f),
      weight(static_cast<std::size_t>(cols), 2.0f);
  Graph graph;
  const NodeId x = graph.AddLeaf("x", LeafKind::kInput,
                                 Contiguous(in.data(), DataType::kF32, {cols, rows, 1, 1}));
  const NodeId w = graph.AddLeaf("w", LeafKind::kWeight,
                                 Contiguous(weight.data(), DataType::kF32, {cols, 1, 1, 1}));
  const NodeId out =
      graph.AddOp(TensorOp::kRmsNorm, "norm", {x, w}, DataType::kF32, {cols, rows, 1, 1});
  graph.node(out).keep = true;
  const auto dispatch = context.MakeDispatch();
  Arena arena(context.device());
  const auto prepared = PrepareGraph(std::move(graph), *dispatch, arena);
  if (!prepared) return {"", prepared.error().message};
  EXPECT_TRUE((*prepared)->Run(context.device().default_stream()));
  EXPECT_NEAR((*prepared)->graph().node(out).out.as<float>()[0], 2.0f, 1e-4f);
  return {(*prepared)->steps()[0]->kernel, (*prepared)->steps()[0]->why};
}

norm::Desc NormOf(std::int32_t rows, std::int32_t cols) {
  std::vector<float> memory(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
  norm::Args args;
  args.in = args.out = Contiguous(memory.data(), DataType::kF32, {cols, rows, 1, 1});
  args.weight = Contiguous(memory.data(), DataType::kF32, {cols, 1, 1, 1});
  return *norm::DescOf(args, CallTerms{});
}

TEST_F(TuningTest, AFasterKernelOfTheUsersOwnWinsAndRunsInTheNextProcess) {
  Own("norm.user.slow", 1, &Slow);
  Own("norm.user.fast", 2, &Right);
  {
    const auto context = Start(Bit(Provider::kUser));
    const auto before = BoundNorm(*context, 8, 512);
    EXPECT_EQ(before.first, "norm.user.slow");
    EXPECT_EQ(before.second, "model");
    const TuneReport report = TuneUntilDecided<norm::Op>(*context, NormOf(8, 512));
    EXPECT_EQ(report.tuned, 1);
    EXPECT_EQ(report.rows[0].op, "norm");
    EXPECT_EQ(report.rows[0].kernel, "norm.user.fast");
    EXPECT_EQ(report.rows[0].before, "norm.user.slow");
    EXPECT_TRUE(report.rows[0].conclusive) << report.rows[0].inconclusive;
    EXPECT_EQ(report.rows[0].quarantined, 0);
    EXPECT_NEAR(report.rows[0].before_us, 20, 1e-4);
    EXPECT_NEAR(report.rows[0].us, 10, 1e-4);
    context->RefreshCache();
    EXPECT_EQ(BoundNorm(*context, 8, 512).first, "norm.user.fast");
  }
  const auto context = Start(Bit(Provider::kUser));
  const auto after = BoundNorm(*context, 8, 512);
  EXPECT_EQ(after.first, "norm.user.fast");
  EXPECT_EQ(after.second, "measured");
  EXPECT_EQ(BoundNorm(*context, 5, 512).second, "interpolated from batch 8");
  EXPECT_EQ(BoundNorm(*context, 8, 256).first, "norm.user.slow");  // nothing was measured of it
  const auto candidates = Look<norm::Op>(*context, NormOf(8, 512));
  const auto choice = Choose(candidates, context->tuned().of<norm::Op>());
  ASSERT_TRUE(choice);
  const auto rows =
      Explain(candidates, &*choice, context->caches().of<norm::Op>().RecordsOf(candidates),
              context->scope());
  EXPECT_EQ(rows[0].kernel, "norm.user.fast");
  EXPECT_NEAR(rows[0].measured_us, 10, 1e-4);
  EXPECT_NEAR(rows[1].measured_us, 20, 1e-4);
}

struct Fault {
  const char* name;
  OwnNorm::Computation computation;
  Verdict verdict;
  const char* evidence;
};

std::vector<Fault> Faults() {
  const auto after = [](std::function<void(const norm::Args&)> spoil) {
    return
        [spoil = std::move(spoil)](const norm::Args& args, const std::function<Status()>& compute) {
          Status status = compute();
          spoil(args);
          return status;
        };
  };
  return {
      {"norm.bad.value", after([](const norm::Args& a) { Out(a, 3 * 64 + 7) *= 1.001f; }),
       Verdict::kWrong, "out[3, 7] = "},
      {"norm.bad.last", after([](const norm::Args& a) { Out(a, 8 * 64 - 1) += 1; }),
       Verdict::kWrong, "out[7, 63] = "},
      {"norm.bad.unwritten",
       [](const norm::Args& args, const std::function<Status()>& compute) {
         const float kept = Out(args, 100);
         Status status = compute();
         Out(args, 100) = kept;
         return status;
       },
       Verdict::kWrong, "out[1, 36] = -nan"},
      {"norm.bad.behind", after([](const norm::Args& a) { Out(a, 8 * 64) = 0; }), Verdict::kGuard,
       "wrote outside out"},
      {"norm.bad.ahead", after([](const norm::Args& a) { Out(a, -1) = 0; }), Verdict::kGuard,
       "wrote outside out"},
      {"norm.bad.input", after([](const norm::Args& a) { a.weight.as<float>()[5] = 0; }),
       Verdict::kGuard, "wrote to weight, which it only reads"},
      {"norm.bad.in_place",
       [](const norm::Args& args, const std::function<Status()>& compute) {
         Status status = compute();
         if (args.in.data == args.out.data) Out(args, 0) += 1;
         return status;
       },
       Verdict::kWrong, "(in place)"},
      {"norm.bad.unsteady",
       [calls = 0](const norm::Args& args, const std::function<Status()>& compute) mutable {
         Status status = compute();
         if (++calls % 3 == 0) Out(args, 0) = std::nextafter(Out(args, 0), 1e9f);
         return status;
       },
       Verdict::kWrong, "two runs differ"},
      {"norm.bad.error",
       [](const norm::Args&, const std::function<Status()>&) {
         return Status(Fail(ErrorCode::kInternal, "no luck"));
       },
       Verdict::kError, "no luck"},
      {"norm.bad.throws",
       [](const norm::Args&, const std::function<Status()>&) -> Status {
         throw std::runtime_error("lost it");
       },
       Verdict::kCrash, "Launch threw: lost it"},
  };
}

TEST_F(TuningTest, AKernelThatIsWrongInAnyWayIsQuarantinedWithItsEvidenceAndNeverChosen) {
  double predicted_us = 0.001;  // all before the library's by the model
  for (const Fault& fault : Faults()) Own(fault.name, predicted_us += 0.0001, fault.computation);
  const auto desc = NormOf(8, 64);
  {
    const auto context = Start();
    EXPECT_EQ(BoundNorm(*context, 9, 32).first, "norm.bad.value");  // the model is all there is
    const TuneReport report = TuneUntilDecided<norm::Op>(*context, desc);
    EXPECT_EQ(report.failed, 0);
    EXPECT_TRUE(report.rows[0].kernel.starts_with("norm.rms.")) << report.rows[0].kernel;
  }
  const auto context = Start();
  const std::vector<Record> records = context->records().Load();
  for (const Fault& fault : Faults()) {
    const auto row = std::find_if(records.begin(), records.end(),
                                  [&](const Record& r) { return r.kernel == fault.name; });
    ASSERT_NE(row, records.end()) << fault.name;
    EXPECT_EQ(row->verdict, fault.verdict) << fault.name << ": " << row->evidence;
    EXPECT_NE(row->evidence.find(fault.evidence), std::string::npos) << row->evidence;
    for (const std::int32_t rows : {8, 3}) {  // at any batch
      norm::Desc other = desc;
      other.rows = rows;
      const auto candidates = Look<norm::Op>(*context, other);
      ASSERT_FALSE(candidates.Find(fault.name)->feasible()) << fault.name;
      EXPECT_EQ(candidates.Find(fault.name)->rejection->reason, Reason::kQuarantined);
    }
  }
  EXPECT_TRUE(BoundNorm(*context, 8, 64).first.starts_with("norm.rms."));
  // Out in the mode that ignores measurements as well.
  ContextOptions refresh;
  refresh.threads = 2, refresh.cache_dir = folder_, refresh.policy = MeasurePolicy::kWarm;
  refresh.cache_mode = CacheMode::kRefresh;
  const auto again = Context::Create(refresh);
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->tuned().of<norm::Op>(), nullptr);
  EXPECT_EQ((*again)->quarantine().size(), Faults().size());
}

/// Right, and looks what its workspace holds when it is launched.
class Scratch final : public norm::Kernel {
 public:
  Scratch() : norm::Kernel(Info()), library_(MakeCpuKernels()) {}
  std::optional<Rejection> IsFeasible(const norm::Desc& desc) const override {
    return Scalar().IsFeasible(desc);
  }
  double EstimateUs(const norm::Desc&, const Spec&, const DeviceSpec&) const override { return 1; }
  WorkspaceSize WorkspaceFor(const norm::Desc&, const Spec&, const DeviceSpec&) const override {
    return {.partials = kBytes};
  }
  Status Launch(const norm::Args& args, const Spec& spec, Workspace& workspace,
                Stream stream) override {
    auto* const bytes = static_cast<unsigned char*>(workspace.partials);
    ++launches;
    poisoned += std::count(bytes, bytes + kBytes, 0xff) == kBytes ? 1 : 0;
    std::fill(bytes, bytes + kBytes, 0);  // what the next launch would take for its own
    return Scalar().Launch(args, spec, workspace, stream);
  }
  int launches = 0, poisoned = 0;

 private:
  static constexpr std::ptrdiff_t kBytes = 256;
  static KernelInfo Info() {
    KernelInfo info;
    info.name = "norm.user.scratch";
    info.fingerprint = "1";
    return info;
  }
  norm::Kernel& Scalar() const { return *library_->of<norm::Op>().Find("norm.rms.f32.scalar"); }
  std::unique_ptr<Kernels> library_;
};

TEST_F(TuningTest, AKernelIsCheckedWithPoisonInItsWorkspace) {
  const auto context = Start();
  const auto measurer = MakeMeasurer<norm::Op>(context->device(), {});
  ASSERT_TRUE(measurer->Prepare(NormOf(8, 64)));
  Scratch kernel;
  norm::Op::Spec spec;
  spec.kernel = &kernel;
  for (int check = 0; check < 2; ++check) EXPECT_EQ(measurer->Check(spec).verdict, Verdict::kOk);
  EXPECT_GE(kernel.launches, 2);
  EXPECT_EQ(kernel.poisoned, kernel.launches);
}

TEST_F(TuningTest, AMemoryThatWasNeverMeasuredIsFasterWithMoreThreads) {
  const auto read = [&](int threads) {
    ContextOptions options;
    options.threads = threads, options.cache_dir = folder_;
    const auto context = Context::Create(options);
    EXPECT_FALSE((*context)->calibrated());
    return (*context)->device_spec().read_gb_s;
  };
  EXPECT_EQ(read(1), DeviceRates().read_gb_s);
  EXPECT_EQ(read(16), 4 * read(4));
}

TEST_F(TuningTest, AModeThatWritesNothingLeavesTheFolderAsItWas) {
  for (const CacheMode mode : {CacheMode::kReadonly, CacheMode::kOffline, CacheMode::kStrict}) {
    ContextOptions options;
    options.threads = 2, options.cache_dir = folder_, options.cache_mode = mode;
    options.calibration = Calibration::kAlways;
    const auto context = Context::Create(options);
    ASSERT_TRUE(context) << context.error().message;
    EXPECT_FALSE((*context)->calibrated());
    Record record;
    record.op = "norm", record.problem = "p", record.kernel = "k";
    EXPECT_TRUE((*context)->records().Append(std::span(&record, 1)));
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << CacheModeName(mode);
  }
}

TEST_F(TuningTest, TheSizeOfTheModelDecidesWhoseRecordsAnswer) {
  ContextOptions options;
  options.threads = 2, options.cache_dir = folder_;
  const auto policy = [&](std::int64_t weight_bytes, std::optional<MeasurePolicy> named) {
    options.weight_bytes = weight_bytes, options.policy = named;
    return Context::Create(options).value()->scope().policy;
  };
  EXPECT_EQ(policy(0, std::nullopt), MeasurePolicy::kCold);
  EXPECT_EQ(policy(1, std::nullopt), MeasurePolicy::kWarm);
  EXPECT_EQ(policy(std::int64_t{1} << 40, std::nullopt), MeasurePolicy::kCold);
  EXPECT_EQ(policy(std::int64_t{1} << 40, MeasurePolicy::kWarm), MeasurePolicy::kWarm);
  EXPECT_EQ(policy(1, MeasurePolicy::kCold), MeasurePolicy::kCold);
}

TEST_F(TuningTest, AProblemWithOneCandidateIsNotTimed) {
  Own("norm.user.only", 1, &Right);
  const auto context = Start(Bit(Provider::kUser));
  const TuneReport report = TuneUntilDecided<norm::Op>(*context, NormOf(8, 64));
  EXPECT_EQ(report.only, 1);
  EXPECT_TRUE(report.rows[0].only);
  EXPECT_EQ(report.rows[0].timed, 0);
  EXPECT_TRUE(context->records().Load().empty());
}

/// Problems of every operation but GEMM, which has tests of its own: types, pages, windows,
/// padding.
template <class Op>
std::vector<const char*> ProblemsToTune();
template <>
std::vector<const char*> ProblemsToTune<norm::Op>() {
  return {"rows=5 cols=576",
          "rows=1 cols=64",
          "rows=300 cols=33",
          "rows=2 cols=4096",
          "rows=5 cols=576 type_sum=f32",
          "rows=300 cols=33 type_sum=f32 type_out=bf16",
          "rows=4 cols=65 type_in=bf16 type_out=f16",
          "rows=6 cols=96 type_sum=f32",
          "rows=3 cols=64 type_in=bf16 type_sum=bf16 type_out=f16"};
}
template <>
std::vector<const char*> ProblemsToTune<rope::Op>() {
  return {
      "mode=half_split rows=7 heads=3 head_dim=64 dims=48",
      "mode=interleaved rows=1 heads=9 head_dim=64 dims=64",
      "rows=600 heads=2 dims=64",
      "rows=5 heads=3 head_dim=64 dims=48 scatter=yes type_out=f16",
      "rows=70 heads=2 head_dim=64 dims=64 scatter=yes type_out=q8_0 page_size=64",
      "rows=4 heads=2 head_dim=20 dims=12 type_in=bf16 type_out=f16",
      "rows=9 heads=3 type_out=f16 scatter=yes",
      "rows=1 heads=9 kv_heads=3 type_cache=f16 page_size=64",
      "mode=half_split rows=40 heads=4 kv_heads=2 dims=48 type_cache=q8_0",
      "rows=6 heads=4 kv_heads=2 head_dim=20 dims=12 type_in=bf16 type_out=bf16 type_cache=f32"};
}
template <>
std::vector<const char*> ProblemsToTune<elementwise::Op>() {
  return {"function=add rows=5 cols=100",
          "function=mul rows=3 cols=77",
          "function=silu rows=4 cols=65 type_b=none",
          "function=swiglu rows=300 cols=128",
          "function=add rows=3 cols=300 type_a=bf16 type_out=f16",
          "function=gelu rows=4 cols=65 type_b=none",
          "function=geglu rows=40 cols=128",
          "function=softcap rows=2 cols=300 type_b=none",
          "function=clamped_swiglu rows=9 cols=130"};
}
template <>
std::vector<const char*> ProblemsToTune<copy::Op>() {
  return {"rows=5 cols=100",
          "rows=3 cols=65 type_src=f32 type_dst=f16",
          "rows=4 cols=96 type_src=bf16 type_dst=f32",
          "rows=2 cols=64 type_src=q4_0 type_dst=q4_0",
          "rows=3 cols=40 type_src=i32 type_dst=i32",
          "rows=2 cols=512 type_src=q4_k type_dst=f32"};
}
template <>
std::vector<const char*> ProblemsToTune<kv_scatter::Op>() {
  return {"rows=5 kv_heads=3 head_dim=64 type_cache=f16",
          "rows=70 kv_heads=2 head_dim=64 type_cache=q8_0 page_size=64",
          "rows=1 kv_heads=1 head_dim=32 page_size=64"};
}
template <>
std::vector<const char*> ProblemsToTune<embedding::Op>() {
  return {"rows=5 hidden=256 type_table=q6_k", "rows=1 hidden=512 type_table=f32",
          "rows=9 hidden=256 type_table=q4_k", "rows=300 hidden=64 type_table=q4_1",
          "rows=3 hidden=96 type_table=bf16",  "rows=3 hidden=288 type_table=q8_0 type_out=bf16"};
}
template <>
std::vector<const char*> ProblemsToTune<attention::Op>() {
  return {"rows=1 context=300 heads=4 kv_heads=2 head_dim=64 type_kv=f16",
          "rows=9 context=100 heads=2 kv_heads=1 head_dim=32",
          "rows=6 sequences=3 context=256 page_size=64 heads=2 kv_heads=2 head_dim=64 type_kv=f16",
          "rows=70 context=2048 page_size=64 heads=2 kv_heads=1 head_dim=64 type_kv=q8_0 window=40",
          "rows=7 context=600 heads=2 kv_heads=2 head_dim=32 window=65 soft_capped=yes",
          "rows=5 context=300 page_size=64 heads=4 kv_heads=2 head_dim=64 window=70 sinks=yes",
          "rows=2 sequences=5 context=64 heads=1 kv_heads=1 head_dim=128 type_kv=bf16"};
}

template <>
std::vector<const char*> ProblemsToTune<top_k::Op>() {
  return {"rows=5 cols=3000 k=1", "rows=1 cols=32000 k=40 type_values=f32",
          "rows=70 cols=300 k=64 type_in=bf16 type_values=f32", "rows=2 cols=5000 k=3 type_in=f16"};
}

template <>
std::vector<const char*> ProblemsToTune<route::Op>() {
  return {"rows=1 experts=128 used=8", "rows=70 experts=60 used=4", "rows=5 experts=8 used=2",
          "rows=9 experts=32 used=4 pair_experts=yes"};
}
template <>
std::vector<const char*> ProblemsToTune<combine::Op>() {
  return {"rows=1 cols=2048 used=8", "rows=40 cols=576 used=4 type_shared=f32",
          "rows=3 cols=33 used=1"};
}

template <class Op>
class EveryOperation : public TuningTest {};
using Operations = testing::Types<norm::Op, rope::Op, elementwise::Op, copy::Op, kv_scatter::Op,
                                  embedding::Op, attention::Op, top_k::Op, route::Op, combine::Op>;
TYPED_TEST_SUITE(EveryOperation, Operations);

template <class Op>
typename Op::Desc Parse(const char* text) {
  auto desc = ParseProblem<Op>(text);
  EXPECT_TRUE(desc) << desc.error().message;
  return *desc;
}

TYPED_TEST(EveryOperation, KernelsOfTheLibraryPassTheCheckAndAreTimed) {
  using Op = TypeParam;
  const auto context = this->Start();
  int checked = 0;
  for (const MeasurePolicy policy : {MeasurePolicy::kCold, MeasurePolicy::kWarm}) {
    const auto measurer =
        MakeMeasurer<Op>(context->device(), {.policy = policy, .llc_bytes = 256 << 10});
    for (const char* text : ProblemsToTune<Op>()) {
      const auto desc = Parse<Op>(text);
      const Status prepared = measurer->Prepare(desc);
      ASSERT_TRUE(prepared) << text << ": " << prepared.error().message;
      const auto candidates = this->template Look<Op>(*context, desc);
      for (const Candidate<Op>& candidate : candidates.all()) {
        for (const auto& spec : candidate.specs) {
          const Tuner::Outcome outcome = measurer->Check(spec);
          EXPECT_EQ(outcome.verdict, Verdict::kOk)
              << candidate.kernel->name() << " on " << KeyOf(desc) << ": " << outcome.evidence;
          EXPECT_FALSE(outcome.skipped) << outcome.evidence;
          EXPECT_GT(measurer->Time(spec, 3).us, 0) << candidate.kernel->name();
          ++checked;
        }
      }
    }
  }
  EXPECT_GE(checked, 4 * static_cast<int>(ProblemsToTune<Op>().size()));  // the oracle and one more
}

TYPED_TEST(EveryOperation, IsMeasuredOnADeviceWhoseMemoryTheHostCannotTouch) {
  using Op = TypeParam;
  const auto context = this->Start();
  auto device = FakeDevice::Create(context->device_spec(), {.seed = 5});
  ASSERT_TRUE(device) << device.error().message;
  const auto kernels = MakeAsyncKernels(context->kernels(), **device);
  const auto measurer = MakeMeasurer<Op>(**device, {.llc_bytes = 64 << 10});
  int checked = 0;
  for (const char* text : ProblemsToTune<Op>()) {
    const auto desc = Parse<Op>(text);
    const Status prepared = measurer->Prepare(desc);
    ASSERT_TRUE(prepared) << text << ": " << prepared.error().message;
    const auto candidates =
        Feasible(*Validate(desc), kernels->template of<Op>(), (*device)->spec(), FeasibleOptions{});
    for (const Candidate<Op>& candidate : candidates.all()) {
      if (!candidate.feasible()) continue;
      const Tuner::Outcome outcome = measurer->Check(candidate.specs[0]);
      EXPECT_EQ(outcome.verdict, Verdict::kOk)
          << candidate.kernel->name() << " on " << KeyOf(desc) << ": " << outcome.evidence;
      EXPECT_FALSE(outcome.skipped) << outcome.evidence;
      EXPECT_GT(measurer->Time(candidate.specs[0], 3).us, 0);
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

TYPED_TEST(EveryOperation, WhatWasTunedDecidesInTheNextProcess) {
  using Op = TypeParam;
  const auto desc = Parse<Op>(ProblemsToTune<Op>()[0]);
  std::string winner;
  {
    const auto context = this->Start();
    if (this->template Look<Op>(*context, desc).feasible_count() < 3)
      GTEST_SKIP() << "one kernel beside the oracle: nothing to tune";
    const TuneReport report = this->template TuneUntilDecided<Op>(*context, desc);
    ASSERT_EQ(report.tuned, 1) << report.rows[0].trouble;
    EXPECT_EQ(report.rows[0].op, Op::kName);
    EXPECT_EQ(report.rows[0].problem, KeyOf(desc));
    EXPECT_EQ(report.rows[0].quarantined, 0);
    EXPECT_GE(report.rows[0].timed, 2);
    winner = report.rows[0].kernel;
  }
  const auto context = this->Start();
  const auto* tuned = context->tuned().template of<Op>();
  ASSERT_NE(tuned, nullptr);
  ForEachOperation([&]<class Other>() {
    if constexpr (!std::is_same_v<Other, Op>) {
      EXPECT_EQ(context->tuned().template of<Other>(), nullptr) << Other::kName;
    }
  });
  const auto candidates = this->template Look<Op>(*context, desc);
  const auto choice = Choose(candidates, tuned);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->provenance(), Provenance::kMeasured);
  EXPECT_EQ(choice->kernel().name(), winner);
  EXPECT_EQ(context->cache_report().problems, 1);
  // Pins are stronger than records.
  for (const Candidate<Op>& candidate : candidates.all()) {
    if (!candidate.feasible() || candidate.kernel->name() == winner) continue;
    Pins pins;
    pins.by_problem[{std::string(Op::kName), KeyOf(desc)}] = {std::string(candidate.kernel->name()),
                                                              SpecText(candidate.specs[0])};
    EXPECT_EQ(Choose(candidates, tuned, &pins)->kernel().name(), candidate.kernel->name());
  }
}

TYPED_TEST(EveryOperation, AnExportedCacheServesAnotherProcess) {
  using Op = TypeParam;
  const auto context = this->Start();
  const auto kernels = context->kernels().template of<Op>().kernels();
  const auto make = [&] {
    return DispatchCacheOf<Op>({kernels.begin(), kernels.end()}, "cpu/test");
  };
  auto cache = make();
  int entries = 0;
  for (const char* text : ProblemsToTune<Op>()) {
    const auto desc = Parse<Op>(text);
    const auto candidates = this->template Look<Op>(*context, desc);
    const auto first = std::find_if(candidates.all().begin(), candidates.all().end(),
                                    [](const Candidate<Op>& c) { return c.feasible(); });
    ASSERT_NE(first, candidates.all().end()) << text;
    auto spec = first->specs[0];
    spec.measured_us = 10.0f + static_cast<float>(entries);
    ASSERT_TRUE(cache.Insert(desc, spec)) << text;
    ++entries;
  }
  std::ostringstream out;
  EXPECT_EQ(cache.Export(out), entries);
  auto copy = make();
  std::istringstream in(out.str());
  EXPECT_EQ(copy.Import(in), entries);
  EXPECT_TRUE(copy.last_import().messages.empty());
  std::ostringstream again;
  copy.Export(again);
  EXPECT_EQ(again.str(), out.str());
  auto asked = Parse<Op>(ProblemsToTune<Op>()[0]);
  const auto found = copy.Find(asked);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->measured_us, 10.0f);
  asked.rows += 1;
  EXPECT_FALSE(copy.Find(asked));
  EXPECT_FALSE(copy.LowerBound(asked));
  ASSERT_TRUE(copy.FloorBoundHit(asked));
  EXPECT_EQ(copy.FloorBoundHit(asked)->batch, asked.rows - 1);
  // Lines of one operation mean nothing to another: kept aside, and passed on.
  std::ostringstream passed;
  ForEachOperation([&]<class Other>() {
    if constexpr (!std::is_same_v<Other, Op>) {
      if (!passed.str().empty()) return;
      const auto others = context->kernels().template of<Other>().kernels();
      DispatchCacheOf<Other> other({others.begin(), others.end()}, "cpu/test");
      std::istringstream lines(out.str());
      EXPECT_EQ(other.Import(lines), 0);
      EXPECT_EQ(other.last_import().foreign, entries);
      EXPECT_EQ(other.Export(passed), 0);
    }
  });
  auto third = make();
  std::istringstream lines(passed.str());
  EXPECT_EQ(third.Import(lines), entries);
}

}  // namespace
}  // namespace tilewright
