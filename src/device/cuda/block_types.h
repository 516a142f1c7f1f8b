#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "core/formats/formats.h"
#include "device/cuda/kernels/block_values.cuh"

namespace tilewright::cuda {
namespace block_types_detail {
template <class... Blocks>
constexpr auto Decoded(BlockList<Blocks...>) {
  constexpr std::array<bool, sizeof...(Blocks)> kDecoded = {
      tw::kIsBlock<static_cast<tw::Type>(Blocks::kFormat.type)>...};
  std::array<DataType, static_cast<std::size_t>(std::ranges::count(kDecoded, true))> types{};
  std::size_t next = 0;
  for (std::size_t i = 0; i < kDecoded.size(); ++i) {
    if (kDecoded[i]) types[next++] = kFormats[i].type;
  }
  return types;
}
}  // namespace block_types_detail

/// The block formats that kernels of GPUs decode (kernels/block_values.cuh), in the order of DataType.
inline constexpr auto kBlockTypes = block_types_detail::Decoded(AllBlocks{});

/// Calls function.template operator()<type>() for each of them.
template <class Function>
void ForEachBlockType(Function&& function) {
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (function.template operator()<static_cast<tw::Type>(kBlockTypes[kIndex])>(), ...);
  }
  (std::make_index_sequence<kBlockTypes.size()>{});
}

/// The same for those of kernels/block_codes.cuh.
template <class Function>
void ForEachBlockOfCodes(Function&& function) {
  ForEachBlockType([&]<tw::Type kType>() {
    if constexpr (tw::kHasBlockCodes<kType>) function.template operator()<kType>();
  });
}

constexpr bool IsBlockType(DataType type) {
  return std::ranges::find(kBlockTypes, type) != kBlockTypes.end();
}

}  // namespace tilewright::cuda
