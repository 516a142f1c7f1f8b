#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tilewright/model.h"
#include "tilewright/types.h"

/// Mixes of types as llama.cpp's quantizer lays them out, without an importance matrix: most
/// matrices have one type, and those that quantisation harms most have a finer one.

namespace tilewright::synth {

/// No format has smaller blocks.
constexpr std::int64_t kLeastBlock = 32;

/// Blocks of a model of n blocks.
enum class Part : std::uint8_t {
  kAll,
  kFirstTwo,
  kFirstFour,
  kFirstSixteenth,
  kFirstEighth,
  kSpread,  ///< the first and the last eighth, and every third of those between
};

/// In the blocks of `part`, matrices of `role` are of `type`.
struct MixRule {
  WeightRole role;
  DataType type;
  Part part = Part::kAll;
  int least_group = 1;  ///< holds for models with that many query heads to a key head, or more
};

struct Mix {
  std::string_view name;
  std::uint32_t file_type = 0;  ///< general.file_type
  DataType base = DataType::kNone;
  std::span<const MixRule> rules;     ///< the first that holds decides
  DataType output = DataType::kQ6_K;  ///< of the output projection
};

std::span<const Mix> Mixes();
/// nullptr if no mix has that name.
const Mix* FindMix(std::string_view name);

/// The type of the matrix of `role` in `block`; -1 for one outside of the blocks.
DataType TypeIn(const Mix& mix, WeightRole role, std::int32_t block, const ModelConfig& config);

/// The type that a mix has in place of `type` for rows of `cols` that are no multiple of its block: one
/// with blocks of 32, or f16 if they are no multiple of 32 either. As llama.cpp's quantizer.
DataType NarrowType(DataType type, std::int64_t cols);

}  // namespace tilewright::synth
