#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/formats/formats.h"
#include "core/random.h"
#include "tilewright/types.h"

namespace tilewright::synth {

/// Makes random weights of one type, about as fast as memory. Plain types: 16 random bits select an
/// entry from a table of normal values (sums of twelve uniform ones, in integers, so that every
/// machine gets the same bytes), so an f32 matrix has at most 65,536 distinct values. Block
/// formats: random bits select a block from a pool of such values, encoded once, and its f16
/// factors are multiplied by the deviation, which varies by a quarter from block to block.
class WeightMaker {
 public:
  /// `type` must be supported. `seed` determines the table or pool.
  WeightMaker(DataType type, std::uint64_t seed);

  /// Fills `out` (whole blocks; any alignment) with values of mean `mean` and standard deviation
  /// `deviation`. A mean other than 0 is for f32 only. `random` continues from call to call.
  void Fill(Random& random, float mean, float deviation, std::span<std::byte> out) const;

  /// f32, f16, bf16 and every block format.
  static bool Supports(DataType type);

 private:
  class Bits;
  void FillBlocks(Bits& bits, float deviation, std::span<std::byte> out) const;

  DataType type_;
  const BlockFormat* format_;    // null for plain types
  std::vector<float> normal_;    // plain: [65536] normal values
  std::vector<std::byte> pool_;  // blocks of deviation 1
};

}  // namespace tilewright::synth
