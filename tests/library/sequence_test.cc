// Sequences of kernels in a whole model: pinned for every product that they can run, on the CPU and
// on a device whose memory the host cannot touch.
#include <gmock/gmock.h>

#include <map>

#include "device/fake/fake_device.h"
#include "graph/fake/async_kernels.h"
#include "models.h"
#include "probe.h"

namespace tilewright {
namespace {

using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::WorstRow;
using test::WriteTiny;

constexpr Precision kPrecision = Precision::kF32;

/// Pins a sequence for every product of `graph` that one can run, and counts them by their names'
/// last word.
void PinSequences(const DeviceDispatch& dispatch, const Graph& graph, const Registry& gemm,
                  const DeviceSpec& device, Pins& pins, std::map<std::string, int>& pinned) {
  for (const TensorNode& node : graph.nodes()) {
    const std::optional<GemmDesc> problem = dispatch.ProblemOf<GemmOp>(graph, node);
    if (!problem || pins.by_problem.contains({"gemm", KeyOf(*problem)})) continue;
    const GemmDesc& desc = *problem;
    const auto candidates = Feasible(Validate(desc).value(), gemm, device);
    for (const GemmCandidate& candidate : candidates.all()) {
      const std::string name(candidate.kernel->name());
      if (!candidate.feasible() || name.find(".sequence.") == std::string::npos) continue;
      pins.by_problem[{"gemm", KeyOf(desc)}] = {name, SpecText(candidate.specs.front())};
      if (desc.scaling == Scaling::kOneOne && name.ends_with(".add")) break;
    }
    const auto found = pins.by_problem.find({"gemm", KeyOf(desc)});
    if (found != pins.by_problem.end())
      ++pinned[found->second.kernel.substr(found->second.kernel.rfind('.') + 1)];
  }
}

class SequencesInAModel : public test::IsaTest {
 protected:
  void SetUp() override {
    IsaTest::SetUp();
    path_ = WriteTiny(folder_, "q4_1", shape_, DataType::kQ4_1);
    // Plain weights: what the sequence that unpacks them reads.
    runner_ = Runner::Make(path_, {.activations = kPrecision, .pack = false, .vendor = false});
    ASSERT_NE(runner_, nullptr);
    if (!runner_->context->device_spec().Has(kFeatureAvx2)) GTEST_SKIP() << "no AVX2";
    want_ = LogitsOf(*runner_->session, tokens_, 0, 0, 17);
    for (const int rows : {1, 17}) {
      for (const int logits : {1, rows}) {
        const auto graph = runner_->session->GraphFor(rows, logits);
        ASSERT_TRUE(graph) << graph.error().message;
        PinSequences(*runner_->cpu, **graph, runner_->context->kernels().gemm(),
                     runner_->context->device_spec(), pins_, pinned_);
      }
    }
  }

  SynthShape shape_ = test::WideShape();
  std::vector<TokenId> tokens_ = RandomTokens(34, shape_.vocab, 3);
  std::string path_;
  std::unique_ptr<Runner> runner_;
  std::vector<float> want_;
  Pins pins_;
  std::map<std::string, int> pinned_;
};

TEST_F(SequencesInAModel, run_where_they_are_pinned_with_right_logits_and_without_allocating) {
  EXPECT_GE(pinned_["unpack"], 4);
  EXPECT_GE(pinned_["add"], 2);
  const auto dispatch = runner_->context->MakeDispatch(kPrecision, Guarantee::kFastest, &pins_);
  auto session = Session::Create(*runner_->model, *dispatch,
                                 {.kv = DataType::kF32, .context = 128, .max_rows = 64});
  ASSERT_TRUE(session) << session.error().message;
  const std::vector<float> got = LogitsOf(**session, tokens_, 0, 0, 17);
  EXPECT_LE(WorstRow(got, want_, static_cast<std::size_t>(shape_.vocab)),
            test::LogitBound(shape_, kPrecision, DataType::kF32));
  EXPECT_EQ(LogitsOf(**session, tokens_, 0, 0, 17), got) << "a second run differs";

  // They really are what the pass consists of.
  const auto graph = (*session)->GraphFor(17, 17);
  ASSERT_TRUE(graph);
  Arena arena(runner_->context->device());
  const auto prepared = PrepareGraph(**graph, *dispatch, arena);
  ASSERT_TRUE(prepared) << prepared.error().message;
  std::map<std::string, int> steps;
  for (const auto& step : (*prepared)->steps()) {
    if (step->kernel.find(".sequence.") == std::string::npos) continue;
    ++steps[step->kernel.substr(step->kernel.rfind('.') + 1)];
    EXPECT_EQ(step->why, "pinned");
    EXPECT_THAT(step->spec, ::testing::HasSubstr("gemm=gemm."));
  }
  EXPECT_GE(steps["unpack"], 4);
  EXPECT_GE(steps["add"], 2);

  if (!test::ProbeWorks()) GTEST_SKIP() << "a sanitizer's malloc cannot be counted";
  std::vector<Row> rows;
  for (std::int32_t i = 0; i < 17; ++i)
    rows.push_back({tokens_[static_cast<std::size_t>(i)], i, 0, true});
  test::StartProbe();
  const bool ok = (*session)->Forward(rows).has_value();
  const test::ProbeCounts counts = test::StopProbe();
  EXPECT_TRUE(ok);
  EXPECT_EQ(counts.allocations, 0);
  EXPECT_EQ(counts.locks, 0);
}

/// The steps themselves are asynchronous here: the second waits on its stream until the first has
/// filled the intermediate matrix, which the host cannot read.
TEST_F(SequencesInAModel, give_the_same_bits_on_a_device_whose_work_is_late) {
  const auto on_cpu = runner_->context->MakeDispatch(kPrecision, Guarantee::kFastest, &pins_);
  const SessionOptions session_options{.kv = DataType::kF32, .context = 128, .max_rows = 64};
  auto cpu = Session::Create(*runner_->model, *on_cpu, session_options);
  ASSERT_TRUE(cpu) << cpu.error().message;
  const std::vector<float> want = LogitsOf(**cpu, tokens_, 0, 0, 17);

  for (const std::uint64_t seed : {1, 2}) {
    auto device = FakeDevice::Create(runner_->context->device_spec(), {.seed = seed});
    ASSERT_TRUE(device) << device.error().message;
    const std::unique_ptr<Kernels> async = MakeAsyncKernels(runner_->context->kernels(), **device);
    DispatchOptions options;
    options.activations = kPrecision;
    options.feasible = runner_->context->feasible_options();
    options.pins = &pins_;
    DeviceDispatch dispatch(*async, **device, options);
    ModelOptions model_options;
    model_options.device = device->get();
    auto model = Model::Load(path_, model_options);
    ASSERT_TRUE(model) << model.error().message;
    auto session = Session::Create(**model, dispatch, session_options);
    ASSERT_TRUE(session) << session.error().message;
    EXPECT_EQ(LogitsOf(**session, tokens_, 0, 0, 17), want) << "seed " << seed;
    EXPECT_EQ((*device)->pending(), 0u);
  }
}

}  // namespace
}  // namespace tilewright
