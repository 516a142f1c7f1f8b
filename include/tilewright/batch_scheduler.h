#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "tilewright/model.h"
#include "tilewright/result.h"

namespace tilewright {

struct BatchSchedulerOptions {
  std::int32_t slots = 1;       ///< sequences held at the same time, as SessionOptions::slots
  std::int32_t max_rows = 512;  ///< rows of a pass, at least `slots` and at most the session's
  std::int32_t context = 0;     ///< positions of one sequence, as Session::context
  /// False: prompts have passes of their own, and nobody generates until none waits for a slot that
  /// is free.
  bool mixed = true;
  std::vector<TokenId> end_of_text = {};  ///< ends a sequence; Tokenizer::end_of_generation
};

/// A token that a pass found.
struct ScheduledToken {
  std::int64_t sequence = 0;  ///< as BatchScheduler::Add numbered it
  TokenId token = 0;
  bool last = false;  ///< the sequence has ended, and given its slot back
};

/// Which rows the next pass of a session has, for sequences that come and go. Every sequence that
/// generates has a row in every pass; the rows that are left take prompts, in the order in which
/// they came and in pieces, so that a long prompt delays everybody's next token by one pass of
/// `max_rows` rows at most, and a finished sequence's slot is used again at once. (Batches that
/// change from pass to pass: Yu et al., "Orca", OSDI 2022; prompts in pieces beside them: Agrawal et
/// al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024.)
///
/// Bookkeeping only: it runs nothing and knows no device. One thread at a time.
///
///   scheduler.Add(prompt, 128);
///   for (auto rows = scheduler.Next(); !rows.empty(); rows = scheduler.Next()) {
///     auto best = session.ForwardTop(rows, 1);
///     for (const ScheduledToken& token : *scheduler.Take(best->ids)) ...
///   }
class BatchScheduler {
 public:
  /// kInvalidArgument names the value and the limit.
  static Result<BatchScheduler> Create(const BatchSchedulerOptions& options);

  /// Queues a prompt of which at most `max_tokens` tokens are to be generated; returns the number of
  /// the sequence. kInvalidArgument: no prompt, no token, or more of both than the context holds.
  Result<std::int64_t> Add(std::vector<TokenId> prompt, std::int32_t max_tokens);

  /// The rows of the next pass; empty where nothing is left to do. Valid until the next call. The
  /// same rows again until Take has told what they found.
  std::span<const Row> Next();

  /// What the pass found: for each of its rows that want logits, in their order, the next token.
  /// Valid until the next call. Errors: kInvalidArgument for any other number of tokens, or where
  /// Next gave no rows; kNumeric for -1, a row whose logits have no order: names its sequence, and
  /// changes nothing.
  Result<std::span<const ScheduledToken>> Take(std::span<const TokenId> found);

  std::int64_t waiting() const { return static_cast<std::int64_t>(queue_.size()); }
  std::int32_t running() const { return static_cast<std::int32_t>(running_.size()); }

 private:
  struct Sequence {
    std::int64_t number = 0;
    std::vector<TokenId> prompt;
    std::int32_t max_tokens = 0;
    std::int32_t slot = 0;
    std::int32_t filled = 0;     ///< positions, when the passes that were taken have run
    std::int32_t generated = 0;  ///< tokens found
    TokenId next = 0;            ///< the last of them

    std::int32_t unread() const { return static_cast<std::int32_t>(prompt.size()) - filled; }
    bool generates() const { return generated > 0; }
  };

  explicit BatchScheduler(const BatchSchedulerOptions& options);
  void AddGenerating();
  void AddPrompts();
  void AddPiece(const Sequence& sequence);
  bool Ends(const Sequence& sequence) const;

  BatchSchedulerOptions options_;
  std::deque<Sequence> queue_;      ///< that have no slot yet
  std::vector<Sequence> running_;   ///< in the order in which they got their slots
  std::vector<std::int32_t> free_;  ///< slots
  std::vector<Row> rows_;           ///< of the pass that is out; empty: none is
  std::vector<ScheduledToken> found_;
  std::int64_t next_number_ = 0;
};

}  // namespace tilewright
