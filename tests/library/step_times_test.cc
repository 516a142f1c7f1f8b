// What the times of a pass say of its steps, on the CPU and on a device that captures them.
#include "tilewright/step_times.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "device/fake/fake_device.h"
#include "graph/fake/async_kernels.h"
#include "models.h"

namespace tilewright {
namespace {

using test::Runner;
using test::WriteTiny;
using ::testing::HasSubstr;

constexpr int kRows = 3, kDepth = 10;

std::vector<Row> RowsFrom(int position) {
  std::vector<Row> rows;
  for (int i = 0; i < kRows; ++i) rows.push_back({i + 5, position + i, 0, i + 1 == kRows});
  return rows;
}

const StepGroup* Find(const StepTimes& times, TensorOp op, const std::string& name) {
  const auto at = std::ranges::find_if(times.groups, [&](const StepGroup& group) {
    return group.op == op && group.name.find(name) != std::string::npos;
  });
  return at == times.groups.end() ? nullptr : &*at;
}

/// Everything but the times themselves.
void ExpectTimesOf(Session& session, const SynthShape& shape, const StepTimes& times) {
  const Result<const Graph*> graph = session.GraphFor(kRows, 1);
  ASSERT_TRUE(graph) << graph.error().message;
  const auto nodes =
      std::ranges::count_if((*graph)->nodes(), [](const TensorNode& n) { return Computes(n.op); });
  int steps = 0;
  for (const StepGroup& group : times.groups) {
    steps += group.count;
    EXPECT_GT(group.us, 0) << group.name;
    EXPECT_GT(group.bytes, 0) << group.name;
    EXPECT_FALSE(group.kernel.empty()) << group.name;
  }
  EXPECT_EQ(steps, nodes);
  EXPECT_GT(times.pass_us, 0);

  // Weights in f32: the least bytes of a product are k * n weights, m rows of k and m of n.
  const StepGroup* output = Find(times, TensorOp::kMulMat, "output");
  ASSERT_NE(output, nullptr);
  EXPECT_EQ(output->count, 1);
  EXPECT_EQ(output->bytes, 4.0 * (shape.hidden * shape.vocab + shape.hidden + shape.vocab));
  EXPECT_EQ(output->ops, 2.0 * shape.hidden * shape.vocab);

  const StepGroup* attention = Find(times, TensorOp::kAttention, "");
  ASSERT_NE(attention, nullptr);
  EXPECT_EQ(attention->count, shape.layers);
  const double scored = 3 * kDepth + 1 + 2 + 3;
  EXPECT_EQ(attention->ops, 4.0 * shape.heads * shape.head_dim * scored);
  const double cache = 2.0 * 4 * shape.kv_heads * shape.head_dim * (kDepth + kRows);
  const double rows = 2.0 * 4 * shape.heads * shape.head_dim * kRows;
  EXPECT_GE(attention->bytes, cache + rows);
  EXPECT_LT(attention->bytes, cache + rows + 4096) << "positions, slots, pages";

  const StepGroup* embedding = Find(times, TensorOp::kEmbedding, "embedding");
  ASSERT_NE(embedding, nullptr);
  EXPECT_LT(embedding->bytes, 4.0 * shape.hidden * shape.vocab) << "reads rows, not the table";
}

void ExpectDiscarded(Session& session) {
  const auto beyond = session.Forward(RowsFrom(kDepth + 1));
  ASSERT_FALSE(beyond) << "the rows that were timed count as filled";
  EXPECT_THAT(beyond.error().message, HasSubstr("slot 0 holds 10 positions"));
  EXPECT_TRUE(session.Forward(RowsFrom(kDepth)));
}

TEST(StepTimes, every_step_of_a_pass_is_in_one_group) {
  const test::TempDir folder;
  const SynthShape shape = test::TinyShape();
  auto runner = Runner::Make(WriteTiny(folder, "tiny", shape, DataType::kF32), {});
  ASSERT_NE(runner, nullptr);
  ASSERT_TRUE(runner->session->Prefill(test::RandomTokens(kDepth, shape.vocab, 1), 0, 0));
  const Result<StepTimes> times = runner->session->TimePass(RowsFrom(kDepth), 2);
  ASSERT_TRUE(times) << times.error().message;
  ExpectTimesOf(*runner->session, shape, *times);
  ExpectDiscarded(*runner->session);
}

TEST(StepTimes, a_device_that_captures_runs_groups_as_a_whole) {
  const test::TempDir folder;
  const SynthShape shape = test::TinyShape();
  const std::string path = WriteTiny(folder, "tiny", shape, DataType::kF32);
  const std::unique_ptr<Kernels> cpu = MakeCpuKernels();
  auto device = FakeDevice::Create(HostDevice().spec(), {.seed = 3});
  ASSERT_TRUE(device) << device.error().message;
  const std::unique_ptr<Kernels> kernels = MakeAsyncKernels(*cpu, **device);
  DeviceDispatch dispatch(*kernels, **device, DispatchOptions{});
  ModelOptions options;
  options.device = device->get();
  auto model = Model::Load(path, options);
  ASSERT_TRUE(model) << model.error().message;
  auto session = Session::Create(
      **model, dispatch, {.kv = DataType::kF32, .context = 128, .buckets = RowBuckets::kExact});
  ASSERT_TRUE(session) << session.error().message;
  ASSERT_TRUE((*session)->Prefill(test::RandomTokens(kDepth, shape.vocab, 1), 0, 0));
  const Result<StepTimes> times = (*session)->TimePass(RowsFrom(kDepth), 1);
  ASSERT_TRUE(times) << times.error().message;
  ExpectTimesOf(**session, shape, *times);
  ExpectDiscarded(**session);
}

TEST(StepTimes, bad_arguments_are_refused) {
  const test::TempDir folder;
  const SynthShape shape = test::TinyShape();
  auto runner = Runner::Make(WriteTiny(folder, "tiny", shape, DataType::kF32), {});
  ASSERT_NE(runner, nullptr);
  const Result<StepTimes> none = runner->session->TimePass(RowsFrom(0), 0);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("repeat = 0"));
  EXPECT_FALSE(runner->session->TimePass(RowsFrom(1000), 1)) << "beyond the context";
  EXPECT_FALSE(runner->session->TimePass({}, 1));
}

}  // namespace
}  // namespace tilewright
