// Tuning on a GPU in a worker, over a libcuda that has none: what is measured is recorded for the
// GPU, and a kernel that ends its context costs itself only.
#include <cstdlib>

#include "device/elf_compiler.h"
#include "worker_fixture.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

class WorkerOnFakeGpu : public WorkerTest {
 protected:
  WorkerOnFakeGpu() {
    setenv("TILEWRIGHT_TEST_FAKE_GPU", "1", 1);
    ContextOptions options = Options("cuda:0");
    options.cuda_library = TILEWRIGHT_FAKE_CUDA;
    options.artifacts.compiler = std::make_shared<cuda::ElfCompiler>();
    auto context = Context::Create(options);
    EXPECT_TRUE(context) << context.error().message;
    context_ = std::move(*context);
  }

  TuneReport TuneProduct(MeasureWorker& worker, const char* text) {
    WorkerMeasurer<GemmOp> measurer(worker, nullptr);
    TuneOptions options;
    options.feasible = context_->feasible_options();
    options.feasible.providers = Bit(Provider::kOwn);
    options.scope = context_->scope();
    const TuneProblemOf<GemmOp> problems[] = {{*ParseProblem<GemmOp>(text), 1}};
    auto report = Tune(problems, context_->kernels().gemm(), context_->device_spec(),
                       context_->records(), measurer, options);
    EXPECT_TRUE(report) << report.error().message;
    return report ? std::move(*report) : TuneReport();
  }

  static constexpr const char* kProduct =
      "m=8 n=64 k=64 type_a=bf16 type_b=bf16 type_c=bf16 pack_b=any align_a=4 align_b=4 align_c=4";
};

TEST_F(WorkerOnFakeGpu, A_product_is_tuned_and_the_record_decides_there) {
  unsetenv("TILEWRIGHT_TEST_FAULT");
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  const TuneReport report = TuneProduct(*worker, kProduct);
  ASSERT_EQ(report.tuned, 1) << report.rows.at(0).trouble;
  EXPECT_GT(report.rows[0].timed, 1);
  EXPECT_EQ(report.rows[0].quarantined, 0);
  EXPECT_EQ(worker->counts().started, 1);
  const auto records = context_->records().Load();
  ASSERT_FALSE(records.empty());
  for (const Record& record : records) EXPECT_EQ(record.scope.device, context_->scope().device);
  context_->RefreshCache();
  const auto desc = *ParseProblem<GemmOp>(kProduct);
  const auto choice = Choose(Feasible(*Validate(desc), context_->kernels().gemm(),
                                      context_->device_spec(), context_->feasible_options()),
                             &context_->cache());
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->provenance(), Provenance::kMeasured);
  EXPECT_EQ(choice->kernel().name(), report.rows[0].kernel);
}

TEST_F(WorkerOnFakeGpu, A_kernel_that_ends_the_context_is_quarantined_and_the_others_are_timed) {
  setenv("TILEWRIGHT_TEST_FAULT", "gemm_hopper", 1);
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  const TuneReport report = TuneProduct(*worker, kProduct);
  unsetenv("TILEWRIGHT_TEST_FAULT");
  ASSERT_EQ(report.tuned, 1) << report.rows.at(0).trouble;
  EXPECT_GT(report.rows[0].quarantined, 0);
  EXPECT_THAT(report.rows[0].kernel, testing::Not(HasSubstr("gemm_hopper")));
  int crashed = 0;
  for (const Record& record : context_->records().Load()) {
    const bool hopper = record.kernel.find("gemm_hopper") != std::string::npos;
    EXPECT_EQ(record.verdict, hopper ? Verdict::kCrash : Verdict::kOk) << record.evidence;
    if (!hopper) continue;
    ++crashed;
    EXPECT_THAT(record.evidence, HasSubstr("in two workers"));
    EXPECT_THAT(record.evidence, HasSubstr("is lost"));
  }
  EXPECT_EQ(report.rows[0].quarantined, crashed);
  EXPECT_EQ(worker->counts().ended, 2 * crashed);
}

TEST_F(WorkerOnFakeGpu, A_promise_that_operands_without_padding_cannot_keep_is_refused) {
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  const Status prepared =
      worker->Prepare("gemm", "m=8 n=64 k=36 type_a=bf16 type_b=bf16 type_c=bf16 align_a=4");
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(prepared.error().message, HasSubstr("align_a = 4"));
}

}  // namespace
}  // namespace tilewright
