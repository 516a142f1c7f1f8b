#include "device/cpu/peak_loops.h"
#include "device/cpu/tiles.h"

namespace tilewright {
namespace {

/// Sums of zero, and operands from four tiles of `live`: the shape a real kernel uses.
void Start(AmxTiles& tiles, const void* live) {
  const auto* operands = static_cast<const unsigned char*>(live);
  tiles.Zero<0>();
  tiles.Zero<1>();
  tiles.Zero<2>();
  tiles.Zero<3>();
  tiles.Load<4>(operands, kTileRowBytes);
  tiles.Load<5>(operands + kTileBytes, kTileRowBytes);
  tiles.Load<6>(operands + 2 * kTileBytes, kTileRowBytes);
  tiles.Load<7>(operands + 3 * kTileBytes, kTileRowBytes);
}

}  // namespace

void PeakI8Amx(int rounds) {
  AmxTiles tiles{TileConfig{}};
  Start(tiles, LiveBytes());
  for (int round = 0; round < rounds; ++round) {
    tiles.DotI8<0, 4, 6>();
    tiles.DotI8<1, 4, 7>();
    tiles.DotI8<2, 5, 6>();
    tiles.DotI8<3, 5, 7>();
  }
}

void PeakBF16Amx(int rounds) {
  AmxTiles tiles{TileConfig{}};
  Start(tiles, LiveBF16());
  for (int round = 0; round < rounds; ++round) {
    tiles.DotBF16<0, 4, 6>();
    tiles.DotBF16<1, 4, 7>();
    tiles.DotBF16<2, 5, 6>();
    tiles.DotBF16<3, 5, 7>();
  }
}

}  // namespace tilewright
