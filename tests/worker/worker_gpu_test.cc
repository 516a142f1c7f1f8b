// Tuning on a GPU, in a worker; skipped where there is none.
#include <gmock/gmock.h>

#include "gpu_faults.h"
#include "worker_fixture.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

class WorkerOnGpu : public WorkerTest {
 protected:
  void SetUp() override {
    auto context = Context::Create(Options("cuda:0"));
    if (!context) GTEST_SKIP() << context.error().message;
    context_ = std::move(*context);
    ASSERT_TRUE(test::AddGpuFaults(context_->kernels().of<norm::Op>()));
  }

  template <class Op>
  TuneReport TuneOne(MeasureWorker& worker, const char* text) {
    WorkerMeasurer<Op> measurer(worker, nullptr);
    TuneOptions options;
    options.feasible = context_->feasible_options();
    options.feasible.providers = Bit(Provider::kOwn);
    options.scope = context_->scope();
    options.tuner.top_k = 4, options.tuner.max_blocks = 8;
    const TuneProblemOf<Op> problems[] = {{*ParseProblem<Op>(text), 1}};
    auto report = Tune(problems, context_->kernels().of<Op>(), context_->device_spec(),
                       context_->records(), measurer, options);
    EXPECT_TRUE(report) << text << report.error().message;
    return report ? std::move(*report) : TuneReport();
  }
  template <class Op>
  void ExpectTuned(MeasureWorker& worker, const char* text) {
    SCOPED_TRACE(text);
    const TuneReport report = TuneOne<Op>(worker, text);
    ASSERT_EQ(report.tuned, 1) << report.rows.at(0).trouble;
    EXPECT_EQ(report.rows[0].quarantined, 0);
    EXPECT_GT(report.rows[0].us, 0.3);  // no kernel is faster than its launch
    context_->RefreshCache();
    const auto desc = *ParseProblem<Op>(text);
    const auto choice = Choose(Feasible(*Validate(desc), context_->kernels().of<Op>(),
                                        context_->device_spec(), context_->feasible_options()),
                               context_->tuned().of<Op>());
    ASSERT_TRUE(choice) << choice.error().message;
    EXPECT_EQ(choice->provenance(), Provenance::kMeasured);
    EXPECT_EQ(TuneOne<Op>(worker, text).skipped, report.rows[0].conclusive ? 1 : 0);
  }
};

TEST_F(WorkerOnGpu, Products_a_norm_and_attention_are_tuned_and_their_records_decide) {
  const auto worker = Start({.program = TILEWRIGHT_WORKER_PROGRAM});
  ASSERT_NE(worker, nullptr);
  ExpectTuned<GemmOp>(*worker,
                      "m=1 n=1024 k=1024 type_a=bf16 type_b=q8_0 type_c=bf16 pack_b=any align_a=4 "
                      "align_b=4 align_c=4");
  ExpectTuned<GemmOp>(*worker,
                      "m=64 n=512 k=1024 type_a=bf16 type_b=bf16 type_c=bf16 pack_b=any align_a=4 "
                      "align_b=4 align_c=4");
  // For a prompt blocks may be unpacked first.
  ExpectTuned<GemmOp>(*worker,
                      "m=256 n=512 k=1024 type_a=bf16 type_b=q4_1 type_c=bf16 pack_b=any align_a=4 "
                      "align_b=4 align_c=4");
  ExpectTuned<norm::Op>(*worker, "rows=32 cols=4096 type_in=bf16 type_weight=f32 type_out=bf16");
  ExpectTuned<attention::Op>(
      *worker,
      "rows=1 sequences=1 context=1024 heads=32 kv_heads=8 head_dim=128 type_q=bf16 type_kv=bf16");
  EXPECT_EQ(worker->counts().ended, 0);
  const auto records = context_->records().Load();
  EXPECT_GE(records.size(), 8u);
  for (const Record& record : records) EXPECT_EQ(record.scope.device, context_->scope().device);
}

TEST_F(WorkerOnGpu, A_kernel_that_faults_costs_itself_and_leaves_the_device_usable) {
  if (const auto compiler = LoadNvrtc(); !compiler) GTEST_SKIP() << compiler.error().message;
  const auto worker = Start({.program = TILEWRIGHT_TEST_WORKER, .check_seconds = 8});
  ASSERT_NE(worker, nullptr);
  const auto desc =
      *ParseProblem<norm::Op>("rows=4 cols=1024 type_in=bf16 type_weight=f32 type_out=bf16");
  WorkerMeasurer<norm::Op> measurer(*worker, nullptr);
  const auto here = MakeMeasurer<norm::Op>(context_->device(), Quick());
  ASSERT_TRUE(here->Prepare(desc));
  const Status prepared = measurer.Prepare(desc);
  ASSERT_TRUE(prepared) << prepared.error().message;
  FeasibleOptions own = context_->feasible_options();
  own.providers = Bit(Provider::kOwn);
  const auto candidates =
      Feasible(*Validate(desc), context_->kernels().of<norm::Op>(), context_->device_spec(), own);
  const auto choice = Choose(candidates, nullptr);
  ASSERT_TRUE(choice) << choice.error().message;
  for (const auto& [kernel, verdict] : {std::pair{test::kTraps, Verdict::kCrash},
                                        {test::kIllegal, Verdict::kCrash},
                                        {test::kSpins, Verdict::kHang}}) {
    SCOPED_TRACE(kernel);
    const Tuner::Outcome outcome = measurer.Check(Spec(kernel));
    EXPECT_EQ(outcome.verdict, verdict) << outcome.evidence;
    EXPECT_FALSE(outcome.skipped) << outcome.evidence;
    EXPECT_THAT(outcome.evidence, HasSubstr("in two workers"));
    const Tuner::Outcome next = measurer.Check(choice->spec());
    EXPECT_EQ(next.verdict, Verdict::kOk) << next.evidence;
    EXPECT_FALSE(next.skipped) << next.evidence;
    const Tuner::Outcome in_this_process = here->Check(choice->spec());
    EXPECT_EQ(in_this_process.verdict, Verdict::kOk) << in_this_process.evidence;
    EXPECT_FALSE(in_this_process.skipped) << in_this_process.evidence;
  }
}

}  // namespace
}  // namespace tilewright
