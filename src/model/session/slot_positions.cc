#include "model/session/slot_positions.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright {

SlotPositions::SlotPositions(const Limits& limits)
    : limits_(limits),
      filled_(static_cast<std::size_t>(limits.slots), 0),
      confirmed_(filled_),
      next_(static_cast<std::size_t>(limits.slots), -1) {}

/// Attention of a row reads every position before its own, so none of them may be unwritten; and a
/// pass writes all its rows before any is read, so its rows of one slot must follow each other.
Status SlotPositions::CheckPosition(std::size_t index, const Row& row) {
  std::int32_t& expected = next_[static_cast<std::size_t>(row.slot)];
  const std::int32_t held = filled_[static_cast<std::size_t>(row.slot)];
  if (expected >= 0 && row.position != expected) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("row {}: position = {}, must be {}: rows of one slot ascend by one",
                            index, row.position, expected));
  }
  if (expected < 0 && row.position > held) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("row {}: position = {}, must be 0 to {}: slot {} holds {} positions",
                            index, row.position, held, row.slot, held));
  }
  expected = row.position + 1;
  return {};
}

Status SlotPositions::Check(std::span<const Row> rows, bool known_later) {
  if (rows.empty() || rows.size() > static_cast<std::size_t>(limits_.max_rows)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} rows in one pass, must be 1 to {}", rows.size(), limits_.max_rows));
  }
  auto check = [](ErrorCode code, std::size_t row, const char* field, std::int32_t value,
                  std::int32_t limit) -> Status {
    if (value >= 0 && value < limit) return {};
    return Fail(code,
                fmt::format("row {}: {} = {}, must be 0 to {}", row, field, value, limit - 1));
  };
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument;
  std::fill(next_.begin(), next_.end(), -1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (!known_later) {
      if (Status s = check(kInvalid, i, "token", row.token, limits_.vocab); !s) return s;
    }
    if (Status s = check(kInvalid, i, "slot", row.slot, limits_.slots); !s) return s;
    if (Status s = check(ErrorCode::kExhausted, i, "position", row.position, limits_.context); !s)
      return s;
    if (Status s = CheckPosition(i, row); !s) return s;
  }
  return {};
}

void SlotPositions::Discard(std::span<const Row> rows) {
  for (const Row& row : rows) {
    for (std::vector<std::int32_t>* held : {&filled_, &confirmed_}) {
      std::int32_t& positions = (*held)[static_cast<std::size_t>(row.slot)];
      positions = std::min(positions, row.position);
    }
  }
}

void SlotPositions::Expect() {
  for (std::size_t slot = 0; slot < filled_.size(); ++slot) {
    if (next_[slot] >= 0) filled_[slot] = next_[slot];
  }
}

}  // namespace tilewright
