// Which rows share a pass: sequences together or apart, prompts whole or in pieces.
#include <algorithm>
#include <cstring>

#include "models.h"

namespace tilewright {
namespace {

using test::LogitBound;
using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::WorstRow;
using test::WriteTiny;

class Batching : public test::IsaTest {
 protected:
  /// Bitwise where `guarantee` says so, else within what the types allow each of the two.
  static void ExpectSame(std::span<const float> got, std::span<const float> want,
                         const SynthShape& shape, Guarantee guarantee, Precision precision,
                         const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    ASSERT_FALSE(got.empty()) << what;
    if (guarantee == Guarantee::kBatchInvariant) {
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size_bytes()), 0)
          << what << ": largest relative L2 of a row "
          << WorstRow(got, want, static_cast<std::size_t>(shape.vocab));
    } else {
      EXPECT_LE(WorstRow(got, want, static_cast<std::size_t>(shape.vocab)),
                2 * LogitBound(shape, precision, DataType::kF16))
          << what;
    }
  }
};

struct Case {
  DataType quant;
  Precision activations;

  /// Small, as the scalar level is slow; a row of q6_k takes 256 values.
  SynthShape shape() const {
    return quant == DataType::kQ6_K ? test::WideShape() : test::TinyShape();
  }
};
constexpr Case kCases[] = {
    {DataType::kF32, Precision::kF32},   {DataType::kBF16, Precision::kBF16},
    {DataType::kBF16, Precision::kAuto}, {DataType::kF16, Precision::kAuto},
    {DataType::kQ4_0, Precision::kAuto}, {DataType::kQ4_1, Precision::kAuto},
    {DataType::kQ4_1, Precision::kI8},   {DataType::kQ8_0, Precision::kI8},
    {DataType::kQ8_0, Precision::kF32},  {DataType::kQ6_K, Precision::kAuto},
};
constexpr Guarantee kGuarantees[] = {Guarantee::kBatchInvariant, Guarantee::kFastest};

std::string Word(const Case& c, Guarantee guarantee) {
  return std::string(DataTypeName(c.quant)) + " activations " +
         std::to_string(static_cast<int>(c.activations)) + " " +
         std::string(GuaranteeName(guarantee));
}

TEST_F(Batching, a_prompt_in_pieces_gives_what_it_gives_whole) {
  for (const Case& c : kCases) {
    const SynthShape shape = c.shape();
    const std::vector<TokenId> tokens = RandomTokens(45, shape.vocab, 11);
    const std::string path = WriteTiny(folder_, std::string(DataTypeName(c.quant)), shape, c.quant);
    for (const Guarantee guarantee : kGuarantees) {
      auto runner = Runner::Make(
          path,
          {.activations = c.activations, .guarantee = guarantee, .kv = DataType::kF16, .slots = 4});
      ASSERT_NE(runner, nullptr);
      const std::vector<float> whole = LogitsOf(*runner->session, tokens, 0, 0, 45);
      int slot = 1;
      for (const int chunk : {1, 7, 32}) {
        ExpectSame(LogitsOf(*runner->session, tokens, slot++, 0, chunk), whole, shape, guarantee,
                   c.activations, Word(c, guarantee) + " in passes of " + std::to_string(chunk));
      }
    }
  }
}

TEST_F(Batching, sequences_that_share_passes_get_what_each_gets_alone) {
  const int lengths[] = {23, 9, 31};
  for (const Case& c : kCases) {
    const SynthShape shape = c.shape();
    const std::string path = WriteTiny(folder_, std::string(DataTypeName(c.quant)), shape, c.quant);
    for (const Guarantee guarantee : kGuarantees) {
      auto runner = Runner::Make(
          path,
          {.activations = c.activations, .guarantee = guarantee, .kv = DataType::kF16, .slots = 4});
      ASSERT_NE(runner, nullptr);
      std::vector<std::vector<TokenId>> tokens;
      std::vector<std::vector<float>> alone, together(3);
      for (int s = 0; s < 3; ++s) {
        tokens.push_back(RandomTokens(lengths[s], shape.vocab, 20 + static_cast<std::uint64_t>(s)));
        alone.push_back(LogitsOf(*runner->session, tokens.back(), 3, 0, 64));
      }
      // Each pass takes the next 1 to 5 rows of every sequence that has any left, the sequences
      // interleaved row by row.
      std::vector<std::size_t> fed(3, 0);
      for (int pass = 0; fed[0] < 23 || fed[1] < 9 || fed[2] < 31; ++pass) {
        std::vector<Row> rows;
        for (int step = 0; step < 1 + pass % 5; ++step) {
          for (int s = 2; s >= 0; --s) {
            const auto i = static_cast<std::size_t>(s);
            if (fed[i] == tokens[i].size()) continue;
            rows.push_back({tokens[i][fed[i]], static_cast<std::int32_t>(fed[i]), s, true});
            ++fed[i];
          }
        }
        const auto logits = runner->session->Forward(rows);
        ASSERT_TRUE(logits) << logits.error().message;
        for (std::size_t r = 0; r < rows.size(); ++r) {
          const auto vocab = static_cast<std::size_t>(shape.vocab);
          const auto row = logits->subspan(r * vocab, vocab);
          auto& target = together[static_cast<std::size_t>(rows[r].slot)];
          target.insert(target.end(), row.begin(), row.end());
        }
      }
      for (std::size_t s = 0; s < 3; ++s) {
        ExpectSame(together[s], alone[s], shape, guarantee, c.activations,
                   Word(c, guarantee) + " sequence " + std::to_string(s));
      }
    }
  }
}

TEST_F(Batching, rows_of_a_model_with_experts_do_not_depend_on_those_that_share_their_pass) {
  for (const char* preset :
       {"tiny-test-mixtral", "tiny-test-qwen2moe", "tiny-test-qwen3moe", "tiny-test-gpt-oss"}) {
    SynthShape shape = FindSynthPreset(preset).value();
    shape.context = 128;
    const auto vocab = static_cast<std::size_t>(shape.vocab);
    const std::vector<TokenId> tokens = RandomTokens(45, shape.vocab, 11),
                               others = RandomTokens(45, shape.vocab, 12);
    for (const DataType quant :
         {DataType::kF32, DataType::kBF16, DataType::kQ8_0, DataType::kMXFP4}) {
      const std::string name = std::string(preset) + " " + std::string(DataTypeName(quant));
      auto runner =
          Runner::Make(WriteTiny(folder_, name, shape, quant),
                       {.guarantee = Guarantee::kBatchInvariant, .kv = DataType::kF16, .slots = 4});
      ASSERT_NE(runner, nullptr);
      const std::vector<float> whole = LogitsOf(*runner->session, tokens, 0, 0, 45);
      for (const int chunk : {1, 7}) {
        ExpectSame(LogitsOf(*runner->session, tokens, 1, 0, chunk), whole, shape,
                   Guarantee::kBatchInvariant, Precision::kAuto,
                   name + " in passes of " + std::to_string(chunk));
      }
      std::vector<float> together;
      for (int first = 0; first < 45; first += 9) {
        std::vector<Row> rows;
        for (int i = first; i < first + 9; ++i) {
          const auto at = static_cast<std::size_t>(i);
          rows.push_back({tokens[at], i, 2, true});
          rows.push_back({others[at], i, 3, true});
        }
        const auto logits = runner->session->Forward(rows);
        ASSERT_TRUE(logits) << logits.error().message;
        for (std::size_t r = 0; r < rows.size(); r += 2) {
          const auto row = logits->subspan(r * vocab, vocab);
          together.insert(together.end(), row.begin(), row.end());
        }
      }
      ExpectSame(together, whole, shape, Guarantee::kBatchInvariant, Precision::kAuto,
                 name + " beside another sequence");
    }
  }
}

TEST_F(Batching, only_the_rows_that_ask_get_logits_in_their_order) {
  const SynthShape shape = test::TinyShape();
  const std::string path = WriteTiny(folder_, "f32", shape, DataType::kF32);
  auto runner = Runner::Make(path, {.guarantee = Guarantee::kBatchInvariant, .slots = 2});
  ASSERT_NE(runner, nullptr);
  const std::vector<TokenId> tokens = RandomTokens(10, shape.vocab, 2);
  const std::vector<float> all = LogitsOf(*runner->session, tokens, 0, 0, 10);
  const auto vocab = static_cast<std::size_t>(shape.vocab);
  std::vector<Row> rows;
  for (int i = 0; i < 10; ++i)
    rows.push_back({tokens[static_cast<std::size_t>(i)], i, 1, i == 2 || i == 9});
  const auto some = runner->session->Forward(rows);
  ASSERT_TRUE(some);
  ASSERT_EQ(some->size(), 2 * vocab);
  EXPECT_TRUE(std::equal(some->begin(), some->begin() + static_cast<std::ptrdiff_t>(vocab),
                         all.begin() + static_cast<std::ptrdiff_t>(2 * vocab)));
  EXPECT_TRUE(std::equal(some->begin() + static_cast<std::ptrdiff_t>(vocab), some->end(),
                         all.begin() + static_cast<std::ptrdiff_t>(9 * vocab)));
  for (Row& row : rows) row.logits = false;
  const auto none = runner->session->Forward(rows);
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
}

TEST_F(Batching, threads_do_not_change_a_bit) {
  for (const DataType quant : {DataType::kF32, DataType::kQ4_1, DataType::kQ6_K}) {
    const SynthShape shape = Case{quant, Precision::kAuto}.shape();
    const std::vector<TokenId> tokens = RandomTokens(40, shape.vocab, 4);
    const std::string path = WriteTiny(folder_, std::string(DataTypeName(quant)), shape, quant);
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      auto runner = Runner::Make(path, {.activations = Precision::kAuto,
                                        .guarantee = Guarantee::kBatchInvariant,
                                        .threads = threads});
      ASSERT_NE(runner, nullptr);
      const std::vector<float> logits = LogitsOf(*runner->session, tokens, 0, 0, 33);
      if (first.empty()) first = logits;
      EXPECT_EQ(logits, first) << DataTypeName(quant) << " on " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace tilewright
