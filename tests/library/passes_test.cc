// What a session promises of its passes: a failed one leaves nothing to rely on, and one that was
// prepared runs where it was prepared for as long as it is kept.
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

/// Refuses a node whose result lies elsewhere than where it lay when its graph was prepared, as a
/// dispatch that resolves addresses when it prepares would find out.
class AddressDispatch final : public ForwardingDispatch {
 public:
  using ForwardingDispatch::ForwardingDispatch;
  std::string_view name() const override { return "addresses"; }

  Status Prepare(const Graph& graph) override {
    ++prepared;
    for (const TensorNode& node : graph.nodes()) addresses_[&node] = node.out.data;
    return inner().Prepare(graph);
  }

  int prepared = 0, moved = 0, unknown = 0;

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView>, const TensorView& out,
                Call call) override {
    const auto known = addresses_.find(&node);
    if (known == addresses_.end()) {
      ++unknown;
    } else if (known->second != out.data) {
      ++moved;
    }
    return call(inner());
  }

 private:
  std::map<const TensorNode*, const void*> addresses_;
};

class Passes : public testing::Test {
 protected:
  void SetUp() override {
    path_ = WriteTiny(folder_, "f32", test::TinyShape(), DataType::kF32);
    runner_ = Runner::Make(path_, {.threads = 1});
    ASSERT_NE(runner_, nullptr);
    vocab_ = runner_->model->config().vocab;
  }

  std::unique_ptr<Session> SessionOver(KernelDispatch& dispatch, int slots = 1) {
    SessionOptions options;
    options.kv = DataType::kF32;
    options.context = 64;
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

TEST_F(Passes, a_prepared_pass_stays_where_it_was_prepared_when_a_larger_one_needs_more_memory) {
  AddressDispatch addresses(*runner_->cpu);
  const std::unique_ptr<Session> session = SessionOver(addresses);
  ASSERT_NE(session, nullptr);
  const std::vector<TokenId> tokens = RandomTokens(40, vocab_, 3);
  const auto forward = [&](int rows) {
    return LogitsOf(*session, std::span(tokens).first(static_cast<std::size_t>(rows)), 0, 0, rows);
  };
  const std::vector<float> before = forward(1);
  const auto small = session->GraphFor(1, 1);
  ASSERT_TRUE(small);
  std::vector<const void*> at;
  for (const TensorNode& node : (*small)->nodes()) at.push_back(node.out.data);
  for (const int rows : {3, 9, 24, 40}) ASSERT_FALSE(forward(rows).empty());
  EXPECT_EQ(addresses.prepared, 5);

  // The first pass again: the same graph, the same places, the same answer, not prepared anew.
  EXPECT_EQ(forward(1), before);
  EXPECT_EQ(session->GraphFor(1, 1).value(), *small);
  std::size_t i = 0;
  for (const TensorNode& node : (*small)->nodes()) EXPECT_EQ(node.out.data, at[i++]) << node.name;
  EXPECT_EQ(addresses.prepared, 5);
  EXPECT_EQ(addresses.moved, 0);
  EXPECT_EQ(addresses.unknown, 0) << "a graph must stay in place between Prepare and its runs";
}

}  // namespace
}  // namespace tilewright
