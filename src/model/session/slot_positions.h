#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tilewright/model.h"
#include "tilewright/result.h"

namespace tilewright {

/// Which positions of each slot hold keys and values, and so which rows a pass may have. One thread
/// at a time.
class SlotPositions {
 public:
  struct Limits {
    std::int32_t vocab = 0, slots = 0, context = 0, max_rows = 0;
  };
  explicit SlotPositions(const Limits& limits);

  /// Checks the rows of a pass and where they continue their slots; Session::Forward says what they
  /// may be. Tokens are not checked where they are `known_later`.
  Status Check(std::span<const Row> rows, bool known_later);
  /// The slots of `rows` hold nothing from those on: a pass that has not ended well leaves nothing to
  /// rely on.
  void Discard(std::span<const Row> rows);
  /// The pass that was checked is with the device, and is expected to end well.
  void Expect();
  /// All passes that were expected have ended well.
  void Confirm() { confirmed_ = filled_; }
  /// One of them failed: nothing is left but what was confirmed before.
  void Retract() { filled_ = confirmed_; }

  std::int32_t slots() const { return limits_.slots; }
  /// Positions that the slot has behind the pass that was checked; -1 where that does not touch it.
  std::int32_t after(std::int32_t slot) const { return next_[static_cast<std::size_t>(slot)]; }

 private:
  Status CheckPosition(std::size_t index, const Row& row);

  Limits limits_;
  // [slots] each: positions 0 to it - 1 hold keys and values.
  std::vector<std::int32_t> filled_;     ///< once what was given to the device has ended
  std::vector<std::int32_t> confirmed_;  ///< whatever becomes of that
  std::vector<std::int32_t> next_;       ///< behind the pass that was checked; -1: not in it
};

}  // namespace tilewright
