#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "tilewright/types.h"

namespace tilewright::synth {

/// Makes random weights of one type, block by block, about as fast as memory: 16 random bits pick
/// an entry of a table of normal values (sums of twelve uniform ones, in integers, so that every
/// machine gets the same bytes), already in the codes of the type. For f32 there are thus 65,536
/// distinct values in a matrix. Scales vary by a quarter from block to block.
class WeightMaker {
 public:
  /// f32, f16, bf16, q4_0, q4_1, q8_0, q6_k. `seed` fixes the tables.
  WeightMaker(DataType type, std::uint64_t seed);

  /// Fills `out` (whole blocks; any alignment) with values of mean `mean` and standard deviation
  /// `deviation`. A mean other than 0 is for f32 only. `random` carries on from call to call.
  void Fill(Random& random, float mean, float deviation, std::span<std::byte> out) const;

  static bool Supports(DataType type);

 private:
  DataType type_;
  std::vector<float> normal_;        // floats: [65536] normal values
  std::vector<std::uint8_t> codes_;  // blocks: [65536] codes; for the 4-bit types two in a byte
};

}  // namespace tilewright::synth
