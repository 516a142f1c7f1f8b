#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {
namespace {

/// Four tiles of sums, two and two of operands, all 16 x 64 bytes: the shape a real kernel uses.
struct alignas(64) TileConfig {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Sums of zero, and operands from four tiles of `live`.
void StartTiles(const TileConfig& config, const void* live) {
  const auto* tiles = static_cast<const unsigned char*>(live);
  // GCC 12 does not know that the instructions read all of `config` and of the tiles, and drops
  // stores to them.
  asm volatile("" ::: "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, tiles, 64);
  _tile_loadd(5, tiles + 1024, 64);
  _tile_loadd(6, tiles + 2048, 64);
  _tile_loadd(7, tiles + 3072, 64);
}

}  // namespace

void PeakI8Amx(int rounds) {
  StartTiles(TileConfig(), LiveBytes());
  for (int round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

void PeakBF16Amx(int rounds) {
  StartTiles(TileConfig(), LiveBF16());
  for (int round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

}  // namespace tilewright
