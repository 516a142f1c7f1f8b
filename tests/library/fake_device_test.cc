// A whole model on a device whose memory the host cannot touch and whose work is done late, in any
// order that its streams allow: bitwise what the CPU gives.
#include "device/fake/fake_device.h"

#include <gmock/gmock.h>

#include "graph/fake/async_kernels.h"
#include "models.h"

namespace tilewright {
namespace {

using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::WriteTiny;

struct Case {
  const char* name;
  DataType quant;
  Precision activations;
  DataType kv;
  bool fuse;
  DataType edges = DataType::kNone;  ///< of norms and logits; no packed layout takes another type
};
constexpr Case kCases[] = {
    {"q4_1", DataType::kQ4_1, Precision::kAuto, DataType::kF16, true},
    {"q8_0 unfused", DataType::kQ8_0, Precision::kI8, DataType::kQ8_0, false},
    {"f32", DataType::kF32, Precision::kF32, DataType::kF32, true},
    {"bf16 norms", DataType::kQ8_0, Precision::kF32, DataType::kF16, true, DataType::kBF16},
};

/// Passes over two sequences that grow, go back and interleave.
std::vector<float> Talk(Session& session, int vocab) {
  const std::vector<TokenId> tokens = RandomTokens(100, vocab, 3);
  std::vector<float> all = LogitsOf(session, std::span(tokens).first(40), 0, 0, 13);
  const auto add = [&](const std::vector<float>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(LogitsOf(session, std::span(tokens).first(70), 1, 0, 32));
  add(LogitsOf(session, std::span(tokens).subspan(30), 0, 30, 16));
  for (std::int32_t i = 0; i < 20; ++i) {
    const std::vector<Row> rows = {{i, 100 + i, 0, i % 2 == 0}, {i + 1, 70 + i, 1, true}};
    const auto logits = session.Forward(rows);
    if (!logits) ADD_FAILURE() << logits.error().message;
    if (logits) all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

TEST(FakeDeviceModel, gives_the_bits_of_the_cpu_whatever_order_its_streams_advance_in) {
  test::TempDir folder;
  SynthShape shape = test::WideShape();
  shape.rope_factor = 8;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const std::string path = WriteTiny(folder, c.name, shape, c.quant);
    const bool pack = c.edges == DataType::kNone;
    const SessionOptions session_options{.kv = c.kv,
                                         .normed = c.edges,
                                         .logits = c.edges,
                                         .context = 256,
                                         .slots = 2,
                                         .max_rows = 32,
                                         .page_size = 64,
                                         .buckets = RowBuckets::kPowersOfTwo};
    auto runner = Runner::Make(path, {.activations = c.activations,
                                      .fuse = c.fuse,
                                      .pack = pack,
                                      .threads = 1,
                                      .vendor = false});
    ASSERT_NE(runner, nullptr);
    auto on_cpu = Session::Create(*runner->model, *runner->cpu, session_options);
    ASSERT_TRUE(on_cpu) << on_cpu.error().message;
    const std::vector<float> want = Talk(**on_cpu, shape.vocab);

    for (const std::uint64_t seed : {1, 2, 3}) {
      auto device = FakeDevice::Create(runner->context->device_spec(), {.seed = seed});
      ASSERT_TRUE(device) << device.error().message;
      const std::unique_ptr<Kernels> kernels =
          MakeAsyncKernels(runner->context->kernels(), **device);
      DispatchOptions options;
      options.activations = c.activations;
      options.feasible = runner->context->feasible_options();
      DeviceDispatch dispatch(*kernels, **device, options);
      ModelOptions model_options;
      model_options.device = device->get();
      model_options.packer = pack ? &dispatch : nullptr;
      model_options.fuse = c.fuse;
      auto model = Model::Load(path, model_options);
      ASSERT_TRUE(model) << model.error().message;
      auto session = Session::Create(**model, dispatch, session_options);
      ASSERT_TRUE(session) << session.error().message;
      EXPECT_EQ(Talk(**session, shape.vocab), want) << "seed " << seed;
      EXPECT_EQ((*device)->pending(), 0u);
    }
  }
}

/// A dispatch with the kernels of the CPU on a fake device.
struct OnFake {
  explicit OnFake(std::uint64_t seed)
      : device(FakeDevice::Create(HostDevice().spec(), {.seed = seed}).value()),
        kernels(MakeAsyncKernels(*cpu, *device)),
        dispatch(*kernels, *device, DispatchOptions{}) {}

  std::unique_ptr<Kernels> cpu = MakeCpuKernels();
  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<Kernels> kernels;
  DeviceDispatch dispatch;
};

constexpr std::int64_t kCols = 64;
TensorView Row(const DeviceMemory& memory) {
  return Contiguous(memory.data(), DataType::kF32, {kCols, 1, 1, 1});
}

TEST(FakeDeviceCalls, positions_in_host_memory_are_those_of_their_own_call) {
  OnFake fake(1);
  Device& device = *fake.device;
  const Stream stream = device.default_stream();
  const std::vector<float> ones(kCols, 1.0f);
  std::vector<float> got(kCols);
  const DeviceMemory x = device.Allocate(kCols * sizeof(float)).value();
  const DeviceMemory first = device.Allocate(kCols * sizeof(float)).value();
  const DeviceMemory second = device.Allocate(kCols * sizeof(float)).value();
  ASSERT_TRUE(device.Upload(x.data(), ones.data(), x.size(), stream));
  TensorNode node;
  node.op = TensorOp::kRope;
  node.inputs = {0, 1};
  node.params.rope.dims = kCols;
  KernelDispatch& dispatch = fake.dispatch;
  const std::int32_t start[] = {0}, later[] = {5};
  ASSERT_TRUE(dispatch.DispatchRope(node, Row(x), std::span(start), {}, Row(first), kCols, 1));
  ASSERT_TRUE(dispatch.DispatchRope(node, Row(x), std::span(later), {}, Row(second), kCols, 1));
  ASSERT_TRUE(device.Download(got.data(), first.data(), first.size(), stream));
  ASSERT_TRUE(device.Synchronize(stream));
  EXPECT_EQ(got, ones) << "turned by the positions of the next call";
}

/// x + x in memory that outlives the graph.
Graph Doubled(const DeviceMemory& x, NodeId& sum) {
  Graph graph;
  const NodeId leaf = graph.AddLeaf("x", LeafKind::kInput, Row(x));
  sum = graph.AddOp(TensorOp::kAdd, "sum", {leaf, leaf}, DataType::kF32, {kCols, 1, 1, 1});
  graph.node(sum).keep = true;
  return graph;
}

TEST(FakeDeviceCalls, a_graph_driven_by_a_decorator_runs_in_the_stream_it_is_given) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    OnFake fake(seed);
    Device& device = *fake.device;
    const auto own = device.CreateStream().value();
    const Stream stream = own->stream();
    const DeviceMemory x = device.Allocate(kCols * sizeof(float)).value();
    const auto trace = MakeTraceDispatch(fake.dispatch, [](std::string_view) {});
    Arena arena(device);
    NodeId sum = kNoNode;
    const auto prepared = PrepareGraph(Doubled(x, sum), *trace, arena).value();
    const std::vector<float> ones(kCols, 1.0f);
    std::vector<float> got(kCols);
    ASSERT_TRUE(device.Upload(x.data(), ones.data(), x.size(), stream));
    ASSERT_TRUE(prepared->Run(stream));
    const void* data = prepared->graph().node(sum).out.data;
    ASSERT_TRUE(device.Download(got.data(), data, x.size(), stream));
    ASSERT_TRUE(device.Synchronize(stream));
    EXPECT_EQ(got, std::vector<float>(kCols, 2.0f)) << "seed " << seed;
  }
}

TEST(FakeDeviceCalls, a_captured_graph_is_replayed_with_new_inputs_until_it_is_stale) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    OnFake fake(seed);
    Device& device = *fake.device;
    const Stream stream = device.default_stream();
    const DeviceMemory x = device.Allocate(kCols * sizeof(float)).value();
    Arena arena(device);
    NodeId sum = kNoNode;
    const auto prepared = PrepareGraph(Doubled(x, sum), fake.dispatch, arena).value();
    ASSERT_TRUE(prepared->Capture(device, stream));
    EXPECT_EQ(fake.device->pending(), 0u) << "nothing runs while it is captured";
    ASSERT_TRUE(prepared->captured());
    for (const float value : {1.0f, 2.0f, 3.0f}) {
      const std::vector<float> in(kCols, value);
      std::vector<float> got(kCols);
      ASSERT_TRUE(device.Upload(x.data(), in.data(), x.size(), stream));
      ASSERT_TRUE(prepared->Run(stream));
      const void* data = prepared->graph().node(sum).out.data;
      ASSERT_TRUE(device.Download(got.data(), data, x.size(), stream));
      ASSERT_TRUE(device.Synchronize(stream));
      EXPECT_EQ(got, std::vector<float>(kCols, 2 * value)) << "seed " << seed;
    }
    fake.dispatch.Forget();
    EXPECT_FALSE(prepared->Run(stream)) << "the choices it was captured with are gone";
    EXPECT_FALSE(prepared->Capture(device, stream));
    EXPECT_EQ(fake.device->pending(), 0u);
  }
}

TEST(FakeDeviceCalls, a_graph_that_a_decorator_drives_is_not_captured_and_still_runs) {
  OnFake fake(1);
  Device& device = *fake.device;
  const DeviceMemory x = device.Allocate(kCols * sizeof(float)).value();
  const auto trace = MakeTraceDispatch(fake.dispatch, [](std::string_view) {});
  Arena arena(device);
  NodeId sum = kNoNode;
  const auto prepared = PrepareGraph(Doubled(x, sum), *trace, arena).value();
  const Status captured = prepared->Capture(device, device.default_stream());
  ASSERT_FALSE(captured);
  EXPECT_EQ(captured.error().code, ErrorCode::kUnsupported) << captured.error().message;
  EXPECT_FALSE(prepared->captured());
  ASSERT_TRUE(device.Fill(x.data(), 0, x.size(), device.default_stream()));
  EXPECT_TRUE(prepared->Run(device.default_stream()));
  EXPECT_TRUE(device.Synchronize(device.default_stream()));
}

TEST(FakeDeviceCalls, a_comparison_with_a_dispatch_of_other_memory_is_refused) {
  OnFake fake(1);
  const DeviceMemory x = fake.device->Allocate(kCols * sizeof(float)).value();
  const DeviceMemory out = fake.device->Allocate(kCols * sizeof(float)).value();
  const auto reference = MakeReferenceDispatch();
  const auto compare = MakeCompareDispatch(fake.dispatch, *reference, [](const NodeComparison&) {});
  TensorNode node;
  node.op = TensorOp::kSilu;
  node.inputs = {0};
  const Status status = compare->DispatchSilu(node, Row(x), Row(out), kCols);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tilewright
