#include "serving.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/random.h"

namespace tilewright::test {

Sequences SequencesOf(const Traffic& traffic, int vocab) {
  Random random(traffic.seed);
  Sequences sequences;
  for (int i = 0; i < traffic.sequences; ++i) {
    const auto length = static_cast<int>(random.Between(3, traffic.longest));
    sequences.push_back(RandomTokens(length, vocab, traffic.seed * 1000 + sequences.size()));
  }
  return sequences;
}

Status Serve(const Sequences& sequences, int slots, const SeePass& see) {
  struct Active {
    std::size_t sequence, fed;
    std::int32_t slot;
  };
  std::vector<Active> active;
  std::vector<std::int32_t> free(static_cast<std::size_t>(slots));
  std::iota(free.begin(), free.end(), 0);
  std::size_t next = 0;
  for (int pass = 0; next < sequences.size() || !active.empty(); ++pass) {
    if (next < sequences.size() && !free.empty()) {
      active.push_back({next++, 0, free.back()});
      free.pop_back();
    }
    std::vector<Row> rows;
    std::vector<std::size_t> of;
    for (int step = 0; step < 4; ++step) {
      for (Active& a : active) {
        const std::vector<TokenId>& tokens = sequences[a.sequence];
        const bool prompt = a.fed < tokens.size() / 2;
        const auto most = prompt ? 1 + (pass + a.slot) % 4 : (step == 0 ? 1 : 0);
        if (step >= most || a.fed == tokens.size()) continue;
        rows.push_back({tokens[a.fed], static_cast<std::int32_t>(a.fed), a.slot, true});
        of.push_back(a.sequence);
        ++a.fed;
      }
    }
    if (Status seen = see(rows, of); !seen) return seen;
    for (const Active& a : active) {
      if (a.fed == sequences[a.sequence].size()) free.push_back(a.slot);
    }
    std::erase_if(active, [&](const Active& a) { return a.fed == sequences[a.sequence].size(); });
  }
  return {};
}

std::vector<std::vector<float>> ServedLogits(Session& session, const Sequences& sequences,
                                             int slots, int vocab) {
  const auto width = static_cast<std::size_t>(vocab);
  std::vector<std::vector<float>> logits(sequences.size());
  const Status served = Serve(
      sequences, slots, [&](std::span<const Row> rows, std::span<const std::size_t> of) -> Status {
        const auto all = session.Forward(rows);
        if (!all) return Fail(all.error());
        for (std::size_t r = 0; r < rows.size(); ++r) {
          const auto row = all->subspan(r * width, width);
          logits[of[r]].insert(logits[of[r]].end(), row.begin(), row.end());
        }
        return {};
      });
  if (served) return logits;
  ADD_FAILURE() << served.error().message;
  return {};
}

std::vector<std::vector<float>> LogitsAlone(Session& session, const Sequences& sequences) {
  std::vector<std::vector<float>> logits;
  for (const auto& tokens : sequences) logits.push_back(LogitsOf(session, tokens, 0, 0, 1));
  return logits;
}

namespace {

/// The k best of a row by a stable sort.
std::vector<TokenId> BestOf(std::span<const float> row, std::size_t k) {
  std::vector<TokenId> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto at = [&](TokenId id) { return row[static_cast<std::size_t>(id)]; };
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return at(a) > at(b); });
  ids.resize(k);
  return ids;
}

void ExpectBest(const TopLogits& best, std::span<const float> logits, std::size_t vocab) {
  const auto k = static_cast<std::size_t>(best.k);
  ASSERT_EQ(best.ids.size(), logits.size() / vocab * k);
  ASSERT_EQ(best.logits.size(), k == 1 ? 0 : best.ids.size());
  for (std::size_t r = 0; r * vocab < logits.size(); ++r) {
    const auto row = logits.subspan(r * vocab, vocab);
    const auto ids = best.ids.subspan(r * k, k);
    ASSERT_EQ(std::vector<TokenId>(ids.begin(), ids.end()), BestOf(row, k)) << "row " << r;
    for (std::size_t i = 0; k > 1 && i < k; ++i)
      ASSERT_EQ(best.logits[r * k + i], row[static_cast<std::size_t>(ids[i])]) << "row " << r;
  }
}

}  // namespace

void ExpectBestOfAllLogits(Session& all, Session& best, int vocab) {
  const auto width = static_cast<std::size_t>(vocab);
  const Sequences sequences =
      SequencesOf({.sequences = 5, .slots = 2, .longest = 12, .seed = 3}, vocab);
  int pass = 0;
  const Status served =
      Serve(sequences, 2, [&](std::span<const Row> rows, std::span<const std::size_t>) -> Status {
        const std::int32_t k = ++pass % 2 != 0 ? 1 : 40;
        const auto logits = all.Forward(rows);
        if (!logits) return Fail(logits.error());
        const auto top = best.ForwardTop(rows, k);
        if (!top) return Fail(top.error());
        EXPECT_EQ(top->k, k);
        ExpectBest(*top, *logits, width);
        const auto later = best.Logits();
        if (!later) return Fail(later.error());
        EXPECT_TRUE(std::equal(later->begin(), later->end(), logits->begin(), logits->end()));
        return {};
      });
  EXPECT_TRUE(served) << served.error().message;
}

namespace {

/// `tokens` passes over rows that go on from `rows`: what each finds.
std::vector<TokenId> InTurn(Session& session, std::vector<Row> rows, int tokens) {
  std::vector<TokenId> found;
  for (int i = 0; i < tokens; ++i) {
    const auto best = session.ForwardTop(rows, 1);
    EXPECT_TRUE(best) << best.error().message;
    if (!best) return found;
    found.insert(found.end(), best->ids.begin(), best->ids.end());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      rows[r].token = best->ids[r];
      ++rows[r].position;
    }
  }
  return found;
}

/// The same with one pass ahead. `more`: the last one is followed by one that nobody receives.
std::vector<TokenId> Ahead(Session& session, std::vector<Row> rows, int tokens, bool more) {
  std::vector<TokenId> found;
  while (session.Receive()) continue;  // what the last text left over
  Status submitted = session.Submit(rows);
  for (int i = 0; i < tokens && submitted; ++i) {
    for (Row& row : rows) row = {kBestOfLast, row.position + 1, row.slot, true};
    if (i + 1 < tokens || more) submitted = session.Submit(rows);
    const auto best = session.Receive();
    EXPECT_TRUE(best) << best.error().message;
    if (!best) return found;
    found.insert(found.end(), best->begin(), best->end());
  }
  EXPECT_TRUE(submitted) << submitted.error().message;
  return found;
}

}  // namespace

void ExpectSubmittedAsInTurn(Session& ahead, Session& in_turn, int vocab) {
  const std::vector<TokenId> prompt = RandomTokens(60, vocab, 4);
  for (Session* session : {&ahead, &in_turn}) {
    for (std::int32_t slot = 0; slot < 2; ++slot) {
      const auto filled = session->Prefill(std::span(prompt).first(40 + 20 * slot), slot, 0);
      ASSERT_TRUE(filled) << filled.error().message;
    }
  }
  const std::vector<Row> one = {{prompt[3], 60, 1, true}};
  const std::vector<Row> two = {{prompt[4], 40, 0, true}, {prompt[5], 60, 1, true}};
  // Past the end of a page; then back to where the first text began, of both sequences.
  for (const bool more : {true, false}) {
    SCOPED_TRACE(more ? "a pass is left over" : "all are received");
    EXPECT_EQ(Ahead(ahead, one, 20, more), InTurn(in_turn, one, 20));
    EXPECT_EQ(Ahead(ahead, two, 100, more), InTurn(in_turn, two, 100));
  }
  // Fewer rows may go on than there were.
  ASSERT_TRUE(ahead.Submit(two));
  ASSERT_TRUE(ahead.Submit(std::vector<Row>{{kBestOfLast, 41, 0, true}}));
  std::vector<TokenId> found;
  for (int pass = 0; pass < 2; ++pass) {
    const auto best = ahead.Receive();
    ASSERT_TRUE(best) << best.error().message;
    found.insert(found.end(), best->begin(), best->end());
  }
  std::vector<TokenId> wanted = InTurn(in_turn, two, 1);
  const std::vector<TokenId> last = InTurn(in_turn, {{wanted[0], 41, 0, true}}, 1);
  wanted.insert(wanted.end(), last.begin(), last.end());
  EXPECT_EQ(found, wanted);
  // A call in between waits, and finds the positions that the passes filled.
  ASSERT_TRUE(ahead.Submit(two));
  const Row later{prompt[6], 41, 0, true};
  const auto got = ahead.Forward(std::span(&later, 1));
  ASSERT_TRUE(got) << got.error().message;
  const std::vector<float> logits(got->begin(), got->end());
  ASSERT_TRUE(in_turn.Forward(two));
  const auto want = in_turn.Forward(std::span(&later, 1));
  ASSERT_TRUE(want) << want.error().message;
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), want->begin(), want->end()));
  EXPECT_FALSE(ahead.Receive()) << "what was submitted before another call is dropped";
}

void ExpectGeneratedAsSampled(Session& generating, Session& all, int vocab) {
  const std::vector<TokenId> prompt = RandomTokens(9, vocab, 5);
  for (const SamplerOptions& sampling :
       {SamplerOptions{.temperature = 0}, SamplerOptions{.temperature = 1.2, .seed = 7},
        SamplerOptions{.temperature = 2, .top_k = 5, .top_p = 1, .min_p = 0, .seed = 8},
        SamplerOptions{.temperature = 1, .top_k = 100, .seed = 9},
        SamplerOptions{.temperature = 0, .repeat_penalty = 1.3}}) {
    SCOPED_TRACE(testing::Message() << "temperature " << sampling.temperature << ", top_k "
                                    << sampling.top_k << ", penalty " << sampling.repeat_penalty);
    GenerateOptions options;
    options.max_tokens = 20;
    options.sampler = sampling;
    const auto generated = Generate(generating, prompt, {}, options);
    ASSERT_TRUE(generated) << generated.error().message;
    Sampler sampler = std::move(*Sampler::Create(sampling));
    for (const TokenId token : prompt) sampler.Accept(token);
    std::vector<TokenId> want;
    auto logits = all.Prefill(prompt, 0, 0);
    for (std::int32_t position = 9; want.size() < 20; ++position) {
      ASSERT_TRUE(logits) << logits.error().message;
      want.push_back(sampler.Sample(*logits).value());
      sampler.Accept(want.back());
      const Row row{want.back(), position, 0, true};
      logits = all.Forward(std::span(&row, 1));
    }
    EXPECT_EQ(generated->tokens, want);
  }
}

void ExpectBatchesOfEverySize(Session& session, int vocab, double bound) {
  constexpr std::size_t kTokens = 7;
  const auto width = static_cast<std::size_t>(vocab);
  const std::vector<TokenId> tokens = RandomTokens(kTokens + 1, vocab, 7);  // none is token 0
  // Slot s has the tokens s and s + 1 (modulo 7), so seven answers are all there are.
  std::vector<std::vector<float>> want;
  for (std::size_t t = 0; t < kTokens; ++t)
    want.push_back(LogitsOf(session, std::vector{tokens[t], tokens[t + 1]}, 0, 0, 1));
  for (const std::int32_t batch : {1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 65, 100, 129, 200, 256}) {
    std::vector<float> got, alone;
    for (std::int32_t position = 0; position < 2; ++position) {
      std::vector<Row> rows;
      for (std::int32_t slot = 0; slot < batch; ++slot) {
        const auto t = static_cast<std::size_t>(slot) % kTokens;
        rows.push_back({tokens[t + static_cast<std::size_t>(position)], position, slot, true});
        const auto row = std::span(want[t]).subspan(static_cast<std::size_t>(position) * width);
        alone.insert(alone.end(), row.begin(), row.begin() + static_cast<std::ptrdiff_t>(width));
      }
      const auto logits = session.Forward(rows);
      ASSERT_TRUE(logits) << "batch " << batch << ": " << logits.error().message;
      got.insert(got.end(), logits->begin(), logits->end());
    }
    if (bound == 0) {
      EXPECT_EQ(got, alone) << "batch " << batch;
    } else {
      EXPECT_LT(WorstRow(got, alone, width), bound) << "batch " << batch;
    }
  }
}

}  // namespace tilewright::test
