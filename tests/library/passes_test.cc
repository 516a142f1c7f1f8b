// What a session promises of its passes: a failed one leaves nothing to rely on, and none runs with
// memory other than what it was prepared with.
#include <gmock/gmock.h>

#include <map>
#include <utility>

#include "graph/forwarding_dispatch.h"
#include "models.h"

namespace tilewright {
namespace {

using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::WriteTiny;
using ::testing::HasSubstr;

/// Fails the call of a node by its name.
class FailingDispatch final : public ForwardingDispatch {
 public:
  using ForwardingDispatch::ForwardingDispatch;
  std::string_view name() const override { return "failing"; }
  std::string failing_node;

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView>, const TensorView&,
                Call call) override {
    if (node.name == failing_node) return Fail(ErrorCode::kInternal, "told to fail");
    return call(inner());
  }
};

/// Notices a node whose tensors lie elsewhere than where they lay when its graph was prepared, as a
/// dispatch that resolves addresses when it prepares would.
class AddressDispatch final : public ForwardingDispatch {
 public:
  using ForwardingDispatch::ForwardingDispatch;
  std::string_view name() const override { return "addresses"; }

  Status Prepare(const Graph& graph) override {
    ++prepared;
    for (const TensorNode& node : graph.nodes()) {
      std::vector<const void*>& places = places_[&node];
      places = {node.out.data};
      for (const NodeId input : node.inputs)
        if (input != kNoNode) places.push_back(graph.node(input).out.data);
    }
    return inner().Prepare(graph);
  }

  int prepared = 0, moved = 0, unknown = 0;

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView> inputs, const TensorView& out,
                Call call) override {
    const auto known = places_.find(&node);
    if (known == places_.end()) {
      ++unknown;
      return call(inner());
    }
    moved += known->second[0] != out.data;
    for (std::size_t i = 0, at = 0; i < inputs.size() && at + 1 < known->second.size(); ++i) {
      if (inputs[i].data != nullptr) moved += known->second[++at] != inputs[i].data;
    }
    return call(inner());
  }

 private:
  std::map<const TensorNode*, std::vector<const void*>> places_;
};

class Passes : public testing::Test {
 protected:
  void SetUp() override {
    path_ = WriteTiny(folder_, "f32", test::TinyShape(), DataType::kF32);
    runner_ = Runner::Make(path_, {.threads = 1});
    ASSERT_NE(runner_, nullptr);
    vocab_ = runner_->model->config().vocab;
  }

  std::unique_ptr<Session> SessionOver(KernelDispatch& dispatch, int slots = 1, int context = 64,
                                       int page_size = 64) {
    SessionOptions options;
    options.kv = DataType::kF32;
    options.context = context;
    options.page_size = page_size;
    options.slots = slots;
    auto session = Session::Create(*runner_->model, dispatch, options);
    if (!session) {
      ADD_FAILURE() << session.error().message;
      return nullptr;
    }
    return std::move(*session);
  }

  test::TempDir folder_;
  std::string path_;
  std::unique_ptr<Runner> runner_;
  int vocab_ = 0;
};

TEST_F(Passes, a_pass_that_fails_forgets_what_lay_from_its_rows_on_and_keeps_what_lay_before) {
  const std::vector<TokenId> tokens = RandomTokens(12, vocab_, 5);
  // Before anything was written, between the two caches of a block, and after all of them.
  for (const char* node : {"embedding", "blk.0.v_scatter", "blk.1.ffn_gate_up", "output"}) {
    SCOPED_TRACE(node);
    FailingDispatch failing(*runner_->cpu);
    const std::unique_ptr<Session> session = SessionOver(failing, 2);
    ASSERT_NE(session, nullptr);
    const std::vector<float> whole = LogitsOf(*session, tokens, 0, 0, 12);
    const std::vector<float> other = LogitsOf(*session, tokens, 1, 0, 12);
    ASSERT_EQ(whole, other);

    failing.failing_node = node;
    const std::vector<Row> back = {{3, 5, 0, true}, {4, 6, 0, true}};
    const auto failed = session->Forward(back);
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().message, HasSubstr("told to fail"));
    failing.failing_node.clear();

    for (const std::int32_t position : {6, 7, 12}) {
      const Row row{1, position, 0, true};
      const auto refused = session->Forward(std::span(&row, 1));
      ASSERT_FALSE(refused) << position;
      EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(refused.error().message, HasSubstr("slot 0 holds 5 positions"));
    }
    // What lay before is still there, and the other slot holds all it held.
    const std::vector<float> again = LogitsOf(*session, std::span(tokens).subspan(5), 0, 5, 7);
    ASSERT_EQ(again.size(), 7 * static_cast<std::size_t>(vocab_));
    EXPECT_TRUE(std::equal(again.begin(), again.end(), whole.end() - 7 * vocab_));
    const Row next{1, 12, 1, true};
    EXPECT_TRUE(session->Forward(std::span(&next, 1)));
  }
}

TEST_F(Passes, a_pass_that_fails_at_new_positions_holds_none_of_them) {
  FailingDispatch failing(*runner_->cpu);
  const std::unique_ptr<Session> session = SessionOver(failing);
  ASSERT_NE(session, nullptr);
  failing.failing_node = "output";
  EXPECT_FALSE(session->Forward(std::vector<Row>{{1, 0, 0}, {2, 1, 0}, {3, 2, 0, true}}));
  failing.failing_node.clear();
  const Row row{1, 1, 0, true};
  const auto refused = session->Forward(std::span(&row, 1));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("slot 0 holds 0 positions"));
}

TEST_F(Passes, a_pass_whose_memory_has_moved_is_prepared_again_and_never_run_as_it_was) {
  AddressDispatch addresses(*runner_->cpu);
  const std::unique_ptr<Session> session = SessionOver(addresses, 2, 4096, 64);
  // Its cache is one page for each sequence, there from the first position on.
  const std::unique_ptr<Session> still = SessionOver(*runner_->cpu, 2, 4096, 4096);
  ASSERT_TRUE(session != nullptr && still != nullptr);
  const std::vector<TokenId> tokens = RandomTokens(3000, vocab_, 3);
  const auto same = [&](int slot, int from, int rows) {
    const auto some =
        std::span(tokens).subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(rows));
    const std::vector<float> logits = LogitsOf(*session, some, slot, from, rows);
    EXPECT_FALSE(logits.empty());
    EXPECT_EQ(logits, LogitsOf(*still, some, slot, from, rows)) << from << " + " << rows;
  };
  same(0, 0, 1);
  EXPECT_EQ(addresses.prepared, 1);
  // Larger and larger passes move the memory of activations, more positions that of the cache; in
  // between, the pass of one row reads what they wrote.
  int from = 1;
  const std::int64_t bytes = session->kv_bytes();
  for (const int rows : {3, 9, 24, 40, 100, 200}) {
    same(0, from, rows);
    from += rows;
    same(0, from++, 1);
    same(1, 0, 1);
  }
  EXPECT_GT(session->kv_bytes(), 2 * bytes);
  // And that of the cache alone.
  for (const std::int64_t held = session->kv_bytes(); session->kv_bytes() == held; from += 100)
    same(0, from, 100);
  same(0, from++, 1);
  EXPECT_EQ(addresses.moved, 0);
  EXPECT_EQ(addresses.unknown, 0);
  // From here on nothing moves: every pass is found as it is.
  int prepared = 0;
  for (int i = 0; i < 3; ++i) {
    same(1, 0, 1);
    same(0, from - 200, 200);
    if (i == 0) prepared = addresses.prepared;
  }
  EXPECT_EQ(addresses.prepared, prepared);
}

TEST(PreparedGraphTest, IsStaleOnceItsDispatchForgetsOrItsArenaMovesAndRefusesToRun) {
  Device& device = HostDevice();
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
  DeviceDispatch dispatch(*kernels, device, {});
  Arena arena(device);
  std::vector<float> a(64, 1.0f), b(64, 2.0f);
  const auto prepare = [&] {
    Graph graph;
    const auto leaf = [&](const char* name, std::vector<float>& data) {
      return graph.AddLeaf(name, LeafKind::kInput,
                           Contiguous(data.data(), DataType::kF32, {64, 1, 1, 1}));
    };
    const NodeId x = leaf("a", a), y = leaf("b", b);
    const NodeId sum = graph.AddOp(TensorOp::kAdd, "sum", {x, y}, DataType::kF32, {64, 1, 1, 1});
    graph.node(sum).keep = true;
    return PrepareGraph(std::move(graph), dispatch, arena).value();
  };
  const Stream stream = device.default_stream();

  auto prepared = prepare();
  EXPECT_FALSE(prepared->stale());
  EXPECT_TRUE(prepared->Run(stream));
  dispatch.Forget();
  EXPECT_TRUE(prepared->stale());
  const Status refused = prepared->Run(stream);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("prepare it again"));

  prepared = prepare();
  EXPECT_TRUE(prepared->Run(stream));
  ASSERT_TRUE(arena.Reserve(arena.size() + 4096));
  EXPECT_TRUE(prepared->stale());
  EXPECT_FALSE(prepared->Run(stream));
  EXPECT_TRUE(prepare()->Run(stream));
}

}  // namespace
}  // namespace tilewright
