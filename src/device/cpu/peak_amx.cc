#include "device/cpu/peak_loops.h"
#include "device/cpu/tiles.h"

namespace tilewright {
namespace {

/// Tiles `first` and `first` + 1 of `live` as operands. Sums, in other registers, begin as zero.
template <int A, int B>
void LoadOperands(AmxTiles& tiles, const void* live, int first) {
  const auto* operands = static_cast<const unsigned char*>(live) + first * kTileBytes;
  tiles.Load<A>(operands, kTileRowBytes);
  tiles.Load<B>(operands + kTileBytes, kTileRowBytes);
}

}  // namespace

// Two sums and two operands: with more, products wait for each other where something else runs on the core
// (tiles.h).

void PeakI8Amx(int rounds) {
  AmxTiles tiles{TileConfig{}};
  LoadOperands<4, 6>(tiles, LiveBytes(), 0);
  for (int round = 0; round < rounds; ++round) {
    tiles.DotI8<0, 4, 6>();
    tiles.DotI8<1, 4, 6>();
    tiles.DotI8<0, 4, 6>();
    tiles.DotI8<1, 4, 6>();
  }
}

void PeakBF16Amx(int rounds) {
  AmxTiles tiles{TileConfig{}};
  LoadOperands<4, 6>(tiles, LiveBF16(), 0);
  for (int round = 0; round < rounds; ++round) {
    tiles.DotBF16<0, 4, 6>();
    tiles.DotBF16<1, 4, 6>();
    tiles.DotBF16<0, 4, 6>();
    tiles.DotBF16<1, 4, 6>();
  }
}

void AllTilesBF16Amx(int rounds) {
  AmxTiles tiles{TileConfig{}};
  LoadOperands<4, 6>(tiles, LiveBF16(), 0);
  LoadOperands<5, 7>(tiles, LiveBF16(), 2);
  for (int round = 0; round < rounds; ++round) {
    tiles.DotBF16<0, 4, 6>();
    tiles.DotBF16<1, 4, 7>();
    tiles.DotBF16<2, 5, 6>();
    tiles.DotBF16<3, 5, 7>();
  }
}

}  // namespace tilewright
