#include "device/cpu/peak_loops.h"
#include "device/cpu/tiles.h"

namespace tilewright {
namespace {

/// Two operands from tiles of `live` in registers 4 and 6, or four in 4 to 7. Sums, in the others, are zero.
template <int kCount>
void LoadOperands(AmxTiles& tiles, const void* live) {
  const auto* operands = static_cast<const unsigned char*>(live);
  tiles.Load<4>(operands, kTileRowBytes);
  tiles.Load<6>(operands + kTileBytes, kTileRowBytes);
  if constexpr (kCount == 4) {
    tiles.Load<5>(operands + 2 * kTileBytes, kTileRowBytes);
    tiles.Load<7>(operands + 3 * kTileBytes, kTileRowBytes);
  }
}

}  // namespace

// Two sums and two operands: with more, products wait for each other where something else runs on the core
// (tiles.h).

void PeakI8Amx(int rounds) {
  AmxTiles tiles{TileConfig{}};
  LoadOperands<2>(tiles, LiveBytes());
  for (int round = 0; round < rounds; ++round) {
    tiles.DotI8<0, 4, 6>();
    tiles.DotI8<1, 4, 6>();
    tiles.DotI8<0, 4, 6>();
    tiles.DotI8<1, 4, 6>();
  }
}

void PeakBF16Amx(int rounds) {
  AmxTiles tiles{TileConfig{}};
  LoadOperands<2>(tiles, LiveBF16());
  for (int round = 0; round < rounds; ++round) {
    tiles.DotBF16<0, 4, 6>();
    tiles.DotBF16<1, 4, 6>();
    tiles.DotBF16<0, 4, 6>();
    tiles.DotBF16<1, 4, 6>();
  }
}

void AllTilesBF16Amx(int rounds) {
  AmxTiles tiles{TileConfig{}};
  LoadOperands<4>(tiles, LiveBF16());
  for (int round = 0; round < rounds; ++round) {
    tiles.DotBF16<0, 4, 6>();
    tiles.DotBF16<1, 4, 7>();
    tiles.DotBF16<2, 5, 6>();
    tiles.DotBF16<3, 5, 7>();
  }
}

}  // namespace tilewright
