#include "tilewright/batch_scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright {

BatchScheduler::BatchScheduler(const BatchSchedulerOptions& options) : options_(options) {
  // The lowest slot is given out first: slots are taken from the back.
  for (std::int32_t slot = options.slots; slot-- > 0;) free_.push_back(slot);
}

Result<BatchScheduler> BatchScheduler::Create(const BatchSchedulerOptions& options) {
  if (options.slots < 1 || options.context < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("slots = {}, context = {}: each must be at least 1", options.slots,
                            options.context));
  }
  if (options.max_rows < options.slots) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("max_rows = {}: must be at least slots = {}, a row for every sequence",
                            options.max_rows, options.slots));
  }
  return BatchScheduler(options);
}

Result<std::int64_t> BatchScheduler::Add(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  if (prompt.empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  if (max_tokens < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("max_tokens = {}: must be at least 1", max_tokens));
  }
  // The last token is found, not fed.
  const std::size_t positions = prompt.size() + static_cast<std::size_t>(max_tokens) - 1;
  if (positions > static_cast<std::size_t>(options_.context)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a prompt of {} tokens and {} to generate take {} positions: the "
                            "context has {}",
                            prompt.size(), max_tokens, positions, options_.context));
  }
  queue_.push_back({.number = next_number_, .prompt = std::move(prompt), .max_tokens = max_tokens});
  return next_number_++;
}

void BatchScheduler::AddGenerating() {
  for (const Sequence& sequence : running_) {
    if (!sequence.generates()) continue;
    rows_.push_back({sequence.next, sequence.filled, sequence.slot, true});
  }
}

/// As much of the prompt as the pass has room for.
void BatchScheduler::AddPiece(const Sequence& sequence) {
  const auto room = options_.max_rows - static_cast<std::int32_t>(rows_.size());
  const std::int32_t count = std::min(room, sequence.unread());
  for (std::int32_t i = sequence.filled; i < sequence.filled + count; ++i)
    rows_.push_back({sequence.prompt[static_cast<std::size_t>(i)], i, sequence.slot, false});
  if (count == sequence.unread()) rows_.back().logits = true;
}

void BatchScheduler::AddPrompts() {
  const auto full = [&] { return rows_.size() >= static_cast<std::size_t>(options_.max_rows); };
  for (const Sequence& sequence : running_) {
    if (full()) return;
    if (!sequence.generates()) AddPiece(sequence);
  }
  while (!full() && !queue_.empty() && !free_.empty()) {
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    running_.back().slot = free_.back();
    free_.pop_back();
    AddPiece(running_.back());
  }
}

std::span<const Row> BatchScheduler::Next() {
  if (!rows_.empty()) return rows_;
  if (options_.mixed) {
    AddGenerating();
    AddPrompts();
  } else {
    AddPrompts();
    if (rows_.empty()) AddGenerating();
  }
  return rows_;
}

bool BatchScheduler::Ends(const Sequence& sequence) const {
  const std::vector<TokenId>& ends = options_.end_of_text;
  return sequence.generated == sequence.max_tokens ||
         std::find(ends.begin(), ends.end(), sequence.next) != ends.end();
}

Result<std::span<const ScheduledToken>> BatchScheduler::Take(std::span<const TokenId> found) {
  const auto wanted =
      std::count_if(rows_.begin(), rows_.end(), [](const Row& r) { return r.logits; });
  if (rows_.empty() || found.size() != static_cast<std::size_t>(wanted)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} tokens for a pass of {} rows of which {} want logits", found.size(),
                            rows_.size(), wanted));
  }
  const auto of_slot = [&](std::int32_t slot) -> Sequence& {
    return *std::find_if(running_.begin(), running_.end(),
                         [slot](const Sequence& s) { return s.slot == slot; });
  };
  std::size_t next = 0;
  for (const Row& row : rows_) {
    if (!row.logits || found[next++] >= 0) continue;
    return Fail(ErrorCode::kNumeric,
                fmt::format("the logits of sequence {} at position {} are not finite",
                            of_slot(row.slot).number, row.position));
  }
  found_.clear();
  next = 0;
  for (const Row& row : rows_) {
    Sequence& sequence = of_slot(row.slot);
    sequence.filled = row.position + 1;
    if (!row.logits) continue;
    sequence.next = found[next++];
    ++sequence.generated;
    found_.push_back({sequence.number, sequence.next, Ends(sequence)});
  }
  rows_.clear();
  for (auto sequence = running_.begin(); sequence != running_.end();) {
    const bool ended = sequence->generates() && Ends(*sequence);
    if (ended) free_.push_back(sequence->slot);
    sequence = ended ? running_.erase(sequence) : sequence + 1;
  }
  return found_;
}

}  // namespace tilewright
