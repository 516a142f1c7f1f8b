#pragma once

#include "device/cpu/tiles.h"

namespace tilewright {

/// One product of tiles: c[rows][row_bytes / 4] += a * b as TDPBF16PS or TDPBSSD defines it. The
/// operands lie in whole tiles, rows 64 bytes apart.
struct TileProduct {
  int rows = 16;     ///< of a and c
  int k_words = 16;  ///< of 32 bits in a row of a: pairs of bf16, fours of int8; rows of b
  int columns = 16;  ///< of c
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;  ///< [16][16] of f32 or int32, of which the product's part is read and written
  bool int8 = false;  ///< int8 operands and int32 sums; otherwise bf16 and f32
};

namespace {  // NOLINT(google-build-namespaces): one copy a file, as in tiles.h

template <class Tiles>
void MultiplyBy(const TileProduct& product) {
  TileConfig config;
  config.rows[0] = config.rows[1] = static_cast<std::uint8_t>(product.rows);
  config.row_bytes[0] = static_cast<std::uint16_t>(4 * product.columns);
  config.row_bytes[1] = static_cast<std::uint16_t>(4 * product.k_words);
  config.rows[2] = static_cast<std::uint8_t>(product.k_words);
  config.row_bytes[2] = static_cast<std::uint16_t>(4 * product.columns);
  Tiles tiles(config);
  tiles.template Load<0>(product.c, kTileRowBytes);
  tiles.template Load<1>(product.a, kTileRowBytes);
  tiles.template LoadOnce<2>(product.b, kTileRowBytes);
  if (product.int8) {
    tiles.template DotI8<0, 1, 2>();
  } else {
    tiles.template DotBF16<0, 1, 2>();
  }
  tiles.template Free<1>();
  tiles.Space();
  tiles.template Free<2>();
  tiles.template Store<0>(product.c, kTileRowBytes);
}

}  // namespace

/// By the instructions: the processor must have AMX, and the system must have granted it.
void MultiplyByInstruction(const TileProduct& product);

}  // namespace tilewright
