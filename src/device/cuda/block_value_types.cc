#include "device/cuda/block_value_types.h"

#include <algorithm>
#include <array>

#include "core/formats/formats.h"
#include "device/cuda/kernels/block_values.cuh"

namespace tilewright::cuda {
namespace {

template <class Block>
constexpr bool Decodes() {
  using Values = tw::BlockValues<static_cast<tw::Type>(Block::kFormat.type)>;
  if constexpr (Values::kBlock == 0) {
    return false;
  } else {
    static_assert(Values::kBlock == Block::kFormat.elements &&
                  Values::kBytes == Block::kFormat.bytes);
    return true;
  }
}
template <class... Blocks>
constexpr auto TypesOf(BlockList<Blocks...>) {
  std::array<DataType, (std::size_t{Decodes<Blocks>()} + ...)> types{};
  std::size_t count = 0;
  ((Decodes<Blocks>() ? void(types[count++] = Blocks::kFormat.type) : void()), ...);
  return types;
}
constexpr auto kTypes = TypesOf(AllBlocks{});

}  // namespace

std::span<const DataType> BlockValueTypes() { return kTypes; }

bool HasBlockValues(DataType type) { return std::ranges::find(kTypes, type) != kTypes.end(); }

}  // namespace tilewright::cuda
