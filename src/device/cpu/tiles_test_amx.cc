#include "device/cpu/tiles.h"
#include "device/cpu/tiles_test_util.h"

namespace tilewright {

void MultiplyByInstruction(const TileProduct& product) {
  TileConfig config;
  config.rows[0] = config.rows[1] = static_cast<std::uint8_t>(product.rows);
  config.row_bytes[0] = static_cast<std::uint16_t>(4 * product.columns);
  config.row_bytes[1] = static_cast<std::uint16_t>(4 * product.k_pairs);
  config.rows[2] = static_cast<std::uint8_t>(product.k_pairs);
  config.row_bytes[2] = static_cast<std::uint16_t>(4 * product.columns);
  AmxTiles tiles(config);
  tiles.Load<0>(product.c, kTileRowBytes);
  tiles.Load<1>(product.a, kTileRowBytes);
  tiles.LoadOnce<2>(product.b, kTileRowBytes);
  tiles.DotBF16<0, 1, 2>();
  tiles.Store<0>(product.c, kTileRowBytes);
}

}  // namespace tilewright
