#pragma once

#include <array>
#include <cstddef>

#include "core/formats/iq4_nl.h"
#include "core/formats/iq4_xs.h"
#include "core/formats/mxfp4.h"
#include "core/formats/q2_k.h"
#include "core/formats/q3_k.h"
#include "core/formats/q4_0.h"
#include "core/formats/q4_1.h"
#include "core/formats/q4_k.h"
#include "core/formats/q5_0.h"
#include "core/formats/q5_1.h"
#include "core/formats/q5_k.h"
#include "core/formats/q6_k.h"
#include "core/formats/q8_0.h"

namespace tilewright {

template <class... Blocks>
struct BlockList {
  static constexpr int kCount = static_cast<int>(sizeof...(Blocks));
  static constexpr std::array<BlockFormat, sizeof...(Blocks)> kFormats = {Blocks::kFormat...};
};

/// The one list of block formats, in the order of DataType.
using AllBlocks =
    BlockList<BlockQ4_0, BlockQ4_1, BlockQ8_0, BlockQ6_K, BlockQ4_K, BlockQ5_0, BlockQ5_K,
              BlockQ2_K, BlockQ3_K, BlockIq4Nl, BlockIq4Xs, BlockQ5_1, BlockMxfp4>;

inline constexpr auto& kFormats = AllBlocks::kFormats;
inline constexpr int kFormatCount = AllBlocks::kCount;
inline constexpr int kFirstFormat = static_cast<int>(DataType::kU4) + 1;  ///< as a DataType
inline constexpr int kDataTypeCount = kFirstFormat + kFormatCount + 1;

namespace formats_detail {
template <class... Blocks>
static inline constexpr bool Sound(BlockList<Blocks...>) {
  int next = kFirstFormat;
  const auto sound = [&next](const BlockFormat& f, std::size_t size) {
    return static_cast<int>(f.type) == next++ && static_cast<std::size_t>(f.bytes) == size &&
           f.elements <= kMaxBlockElements && f.elements % f.sub_block == 0 &&
           f.sub_blocks() <= kMaxSubBlocks && f.sub_block % 16 == 0 && f.code_bits <= 8 &&
           f.scale != Factor::kNone && (f.min == Factor::kNone) == (f.min_at < 0) &&
           f.min != Factor::kPowerOfTwo && f.integer_bits <= 8 &&
           (!f.has_table || (f.code_bits == 4 && f.zero == 0));
  };
  return (sound(Blocks::kFormat, sizeof(Blocks)) && ...);
}
static_assert(static_cast<int>(DataType::kI8X32) == kDataTypeCount - 1);
static_assert(Sound(AllBlocks{}), "a descriptor contradicts its struct, its place or a limit");
}  // namespace formats_detail

/// The descriptor of a block format; null for any other type.
static inline constexpr const BlockFormat* FindFormat(DataType type) {
  const int index = static_cast<int>(type) - kFirstFormat;
  return index >= 0 && index < kFormatCount ? &kFormats[static_cast<std::size_t>(index)] : nullptr;
}

/// Calls function.template operator()<Block>() for the format of `type`; false if `type` is not a
/// block format.
template <class Function, class... Blocks>
static inline bool WithBlock(BlockList<Blocks...>, DataType type, Function&& function) {
  return ((Blocks::kFormat.type == type && (function.template operator()<Blocks>(), true)) || ...);
}

}  // namespace tilewright
