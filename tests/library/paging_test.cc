// The KV cache in pages: memory follows the positions that are held, and no answer depends on where
// a page lies.
#include <gmock/gmock.h>

#include <algorithm>

#include "graph/forwarding_dispatch.h"
#include "models.h"

namespace tilewright {
namespace {

using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::WriteTiny;
using ::testing::HasSubstr;

/// Counts the graphs that are prepared.
class CountingDispatch final : public ForwardingDispatch {
 public:
  using ForwardingDispatch::ForwardingDispatch;
  std::string_view name() const override { return "counting"; }
  Status Prepare(const Graph& graph) override {
    ++prepared;
    return inner().Prepare(graph);
  }
  int prepared = 0;

 protected:
  Status Around(const TensorNode&, std::span<const TensorView>, const TensorView&,
                Call call) override {
    return call(inner());
  }
};

class Paging : public testing::Test {
 protected:
  void SetUp() override {
    path_ = WriteTiny(folder_, "f32", test::WideShape(), DataType::kF32);
    runner_ = Runner::Make(path_, {.guarantee = Guarantee::kBatchInvariant, .threads = 2});
    ASSERT_NE(runner_, nullptr);
    vocab_ = runner_->model->config().vocab;
  }

  std::unique_ptr<Session> Make(const SessionOptions& options, KernelDispatch* dispatch = nullptr) {
    auto session = Session::Create(*runner_->model, dispatch ? *dispatch : *runner_->cpu, options);
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

TEST_F(Paging, a_context_is_not_reserved_and_memory_follows_the_positions_that_are_held) {
  const std::unique_ptr<Session> session =
      Make({.kv = DataType::kF32, .context = 1 << 20, .slots = 8, .page_size = 64});
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->kv_bytes(), 0);
  EXPECT_EQ(session->kv_pages_held(), 0);
  const std::int64_t page = 64 * session->kv_bytes_per_position();
  const std::vector<TokenId> tokens = RandomTokens(300, vocab_, 1);
  std::int64_t held = 0;
  for (const auto& [slot, positions] : {std::pair{0, 300}, {3, 65}, {7, 64}, {1, 1}}) {
    ASSERT_FALSE(LogitsOf(*session, std::span(tokens).first(static_cast<std::size_t>(positions)),
                          slot, 0, 50)
                     .empty());
    held += (positions + 63) / 64;
    EXPECT_EQ(session->kv_pages_held(), held);
    EXPECT_GE(session->kv_bytes(), held * page);
    EXPECT_LE(session->kv_bytes(), (2 * held + 1) * page);
  }
  // A slot that starts again gives its pages to the others.
  const std::int64_t bytes = session->kv_bytes();
  ASSERT_TRUE(session->Forward(std::vector<Row>{{1, 0, 0, true}}));
  EXPECT_EQ(session->kv_pages_held(), held - 4);
  ASSERT_FALSE(LogitsOf(*session, std::span(tokens).first(200), 5, 0, 50).empty());
  EXPECT_EQ(session->kv_pages_held(), held);
  EXPECT_EQ(session->kv_bytes(), bytes);
}

TEST_F(Paging, no_answer_depends_on_the_size_or_the_order_of_pages) {
  const std::vector<TokenId> first = RandomTokens(150, vocab_, 1);
  const std::vector<TokenId> second = RandomTokens(140, vocab_, 2);
  for (const DataType kv : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    SCOPED_TRACE(DataTypeName(kv));
    std::vector<std::vector<float>> answers;
    for (const std::int32_t page_size : {64, 128, 256, 1024}) {  // 1024: a sequence is one page
      const std::unique_ptr<Session> session =
          Make({.kv = kv, .context = 1024, .slots = 3, .page_size = page_size});
      ASSERT_NE(session, nullptr);
      // Pages of the sequences alternate, and those of a third that went away lie between.
      LogitsOf(*session, std::span(second).first(90), 2, 0, 90);
      std::vector<float> all = LogitsOf(*session, std::span(first).first(70), 0, 0, 33);
      const auto add = [&](const std::vector<float>& more) {
        all.insert(all.end(), more.begin(), more.end());
      };
      add(LogitsOf(*session, second, 1, 0, 47));
      LogitsOf(*session, std::span(second).first(1), 2, 0, 1);
      add(LogitsOf(*session, std::span(first).subspan(70), 0, 70, 33));
      for (std::int32_t position = 150; position < 200; ++position) {
        const std::vector<Row> rows = {{position, position, 0, true},
                                       {position, position - 10, 1, true}};
        const auto logits = session->Forward(rows);
        ASSERT_TRUE(logits) << logits.error().message;
        all.insert(all.end(), logits->begin(), logits->end());
      }
      answers.push_back(std::move(all));
    }
    for (const std::vector<float>& answer : answers) EXPECT_EQ(answer, answers[0]);
  }
}

TEST_F(Paging, passes_padded_to_powers_of_two_give_the_same_logits_with_fewer_graphs) {
  CountingDispatch exact(*runner_->cpu), padded(*runner_->cpu);
  const std::unique_ptr<Session> one =
      Make({.kv = DataType::kF32, .context = 256, .slots = 2, .max_rows = 24}, &exact);
  const std::unique_ptr<Session> other = Make({.kv = DataType::kF32,
                                               .context = 256,
                                               .slots = 2,
                                               .max_rows = 24,
                                               .buckets = RowBuckets::kPowersOfTwo},
                                              &padded);
  ASSERT_TRUE(one != nullptr && other != nullptr);
  const std::vector<TokenId> tokens = RandomTokens(240, vocab_, 4);
  std::int32_t at = 0;
  // All numbers of rows, with the logits of all, of some and of none; the last is more than the
  // power of two below the limit.
  for (const int count : {1, 2, 3, 5, 6, 7, 11, 13, 17, 19, 23, 24}) {
    for (const int every : {1, 2, 100}) {
      if (at + count > 240) continue;
      std::vector<Row> rows;
      for (int i = 0; i < count; ++i) {
        rows.push_back(
            {tokens[static_cast<std::size_t>(at + i)], at + i, 1, every != 100 && i % every == 0});
      }
      const auto want = one->Forward(rows);
      const auto got = other->Forward(rows);
      ASSERT_TRUE(want && got) << count << " " << every;
      ASSERT_EQ(got->size(), want->size());
      EXPECT_TRUE(std::equal(got->begin(), got->end(), want->begin())) << count << " " << every;
      at += count;
    }
  }
  EXPECT_LT(padded.prepared, exact.prepared);
}

TEST_F(Paging, no_memory_for_more_pages_is_an_error_and_what_lay_before_stays) {
  class Limited final : public Allocator {
   public:
    void* Allocate(std::size_t bytes, std::size_t alignment) override {
      return refuse ? nullptr : DefaultAllocator().Allocate(bytes, alignment);
    }
    void Free(void* memory, std::size_t bytes) override { DefaultAllocator().Free(memory, bytes); }
    bool refuse = false;
  } allocator;
  const std::unique_ptr<Device> device =
      MakeCpuDevice(DetectCpu().value(), {.executor = nullptr, .allocator = &allocator});
  DispatchOptions options;
  options.guarantee = Guarantee::kBatchInvariant;
  options.activations = Precision::kF32;
  DeviceDispatch dispatch(runner_->context->kernels(), *device, options);
  ModelOptions model_options;
  model_options.device = device.get();
  model_options.packer = &dispatch;
  const auto model = Model::Load(path_, model_options);
  ASSERT_TRUE(model) << model.error().message;
  SessionOptions session_options{.kv = DataType::kF32, .context = 1024, .page_size = 64};
  auto session = Session::Create(**model, dispatch, session_options);
  ASSERT_TRUE(session) << session.error().message;
  const std::vector<TokenId> tokens = RandomTokens(400, vocab_, 4);
  const std::vector<float> whole = LogitsOf(**session, std::span(tokens).first(128), 0, 0, 32);
  ASSERT_FALSE(whole.empty());
  const std::vector<TokenId> rest(tokens.begin() + 128, tokens.end());
  allocator.refuse = true;
  const auto refused = (*session)->Prefill(rest, 0, 128);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("KV cache"));
  allocator.refuse = false;
  EXPECT_TRUE((*session)->Prefill(rest, 0, 128));
  EXPECT_EQ(LogitsOf(**session, std::span(tokens).subspan(96, 32), 0, 96, 32),
            std::vector<float>(whole.end() - 32 * vocab_, whole.end()));
}

}  // namespace
}  // namespace tilewright
