// A whole model on a device whose memory the host cannot touch and whose work is done late, in any
// order that its streams allow: bitwise what the CPU gives.
#include "device/fake/fake_device.h"

#include <gmock/gmock.h>

#include "graph/fake/async_kernels.h"
#include "models.h"
#include "on_host.h"
#include "serving.h"

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

/// A model on a fake device.
struct ModelOnFake {
  static std::unique_ptr<ModelOnFake> Make(const std::string& path, std::uint64_t seed,
                                           Guarantee guarantee) {
    auto made = std::make_unique<ModelOnFake>(seed, guarantee);
    ModelOptions options;
    options.device = made->fake.device.get();
    options.packer = &made->dispatch;
    auto model = Model::Load(path, options);
    if (!model) {
      ADD_FAILURE() << model.error().message;
      return nullptr;
    }
    made->model = std::move(*model);
    return made;
  }
  ModelOnFake(std::uint64_t seed, Guarantee guarantee)
      : fake(seed), dispatch(*fake.kernels, *fake.device, OptionsOf(guarantee)) {}
  static DispatchOptions OptionsOf(Guarantee guarantee) {
    DispatchOptions options;
    options.guarantee = guarantee;
    return options;
  }

  std::unique_ptr<Session> NewSession(const SessionOptions& options,
                                      KernelDispatch* decorated = nullptr) {
    auto session = Session::Create(*model, decorated != nullptr ? *decorated : dispatch, options);
    if (session) return std::move(*session);
    ADD_FAILURE() << session.error().message;
    return nullptr;
  }

  OnFake fake;
  DeviceDispatch dispatch;
  std::unique_ptr<Model> model;
};

class FakeServing : public testing::Test {
 protected:
  void SetUp() override {
    on_fake_ = ModelOnFake::Make(WriteTiny(folder_, "q4_1", shape_, DataType::kQ4_1), 4,
                                 Guarantee::kBatchInvariant);
    ASSERT_NE(on_fake_, nullptr);
  }
  static SessionOptions Options(int slots) {
    return {.context = 128, .slots = slots, .max_rows = 256, .page_size = 64};
  }

  test::TempDir folder_;
  SynthShape shape_ = test::TinyShape();
  std::unique_ptr<ModelOnFake> on_fake_;
};

TEST_F(FakeServing, many_sequences_that_come_and_go_are_each_bit_for_bit_what_they_are_alone) {
  const test::Sequences sequences = test::SequencesOf({.longest = 20}, shape_.vocab);
  const auto alone = on_fake_->NewSession(Options(1)), together = on_fake_->NewSession(Options(16));
  ASSERT_TRUE(alone != nullptr && together != nullptr);
  EXPECT_EQ(test::ServedLogits(*together, sequences, 16, shape_.vocab),
            test::LogitsAlone(*alone, sequences));
}

TEST_F(FakeServing, batches_of_every_size_are_padded_without_a_trace) {
  const auto session = on_fake_->NewSession(Options(256));
  ASSERT_NE(session, nullptr);
  test::ExpectBatchesOfEverySize(*session, shape_.vocab, 0);
}

/// What makes a captured pass stale happens here: rows cross the edges of buckets, the cache grows
/// and moves, sequences join and end. A decorator keeps the other session from capturing.
TEST_F(FakeServing, replayed_passes_give_the_bits_of_those_launched_one_by_one) {
  const test::Sequences sequences =
      test::SequencesOf({.sequences = 10, .slots = 5, .longest = 100}, shape_.vocab);
  const auto eager = MakeTraceDispatch(on_fake_->dispatch, [](std::string_view) {});
  const auto launched = on_fake_->NewSession(Options(5), eager.get());
  const auto replayed = on_fake_->NewSession(Options(5));
  ASSERT_TRUE(launched != nullptr && replayed != nullptr);
  const std::int64_t before = replayed->kv_bytes();
  EXPECT_EQ(test::ServedLogits(*replayed, sequences, 5, shape_.vocab),
            test::ServedLogits(*launched, sequences, 5, shape_.vocab));
  EXPECT_GT(replayed->kv_bytes(), before) << "the cache was to grow";
}

TEST_F(FakeServing, the_best_logits_are_found_where_they_are_computed) {
  for (const DataType logits : {DataType::kF32, DataType::kBF16}) {
    SessionOptions options = Options(2);
    options.logits = logits;
    if (logits != DataType::kF32) {  // no packed layout gives another type
      ModelOptions plain;
      plain.device = on_fake_->fake.device.get();
      auto model = Model::Load(WriteTiny(folder_, "q4_1", shape_, DataType::kQ4_1), plain);
      ASSERT_TRUE(model) << model.error().message;
      on_fake_->model = std::move(*model);
    }
    const auto all = on_fake_->NewSession(options), best = on_fake_->NewSession(options);
    ASSERT_TRUE(all != nullptr && best != nullptr);
    test::ExpectBestOfAllLogits(*all, *best, shape_.vocab);
    test::ExpectGeneratedAsSampled(*best, *all, shape_.vocab);
  }
}

/// So a GPU is compared with the oracle; here the roundings are those of f32.
TEST_F(FakeServing, every_node_is_what_the_oracle_makes_of_its_inputs) {
  ModelOptions plain;
  plain.device = on_fake_->fake.device.get();
  const auto model = Model::Load(WriteTiny(folder_, "q4_1", shape_, DataType::kQ4_1), plain);
  ASSERT_TRUE(model) << model.error().message;
  DispatchOptions in_f32;
  in_f32.activations = Precision::kF32;
  DeviceDispatch dispatch(*on_fake_->fake.kernels, *on_fake_->fake.device, in_f32);
  SessionOptions options = Options(2);
  options.kv = DataType::kF32;
  EXPECT_GT(test::ExpectNodesOfOracle(**model, dispatch, options, 4e-6), 50);
}

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

TEST(FakeDeviceModel, passes_submitted_ahead_find_what_passes_in_turn_find) {
  test::TempDir folder;
  const SynthShape shape = test::WideShape();
  const std::string path = WriteTiny(folder, "ahead", shape, DataType::kQ8_0);
  const SessionOptions options{
      .kv = DataType::kF16, .context = 192, .slots = 2, .max_rows = 64, .page_size = 64};
  for (const std::uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    const auto on_fake = ModelOnFake::Make(path, seed, Guarantee::kFastest);
    const auto other = ModelOnFake::Make(path, seed + 10, Guarantee::kFastest);
    ASSERT_TRUE(on_fake && other);
    const std::unique_ptr<Session> ahead = on_fake->NewSession(options);
    const std::unique_ptr<Session> in_turn = other->NewSession(options);
    ASSERT_TRUE(ahead && in_turn);
    EXPECT_TRUE(ahead->asynchronous());
    test::ExpectSubmittedAsInTurn(*ahead, *in_turn, shape.vocab);
    test::ExpectGeneratedAsSampled(*ahead, *in_turn, shape.vocab);
  }
}

}  // namespace
}  // namespace tilewright
