#pragma once

namespace tilewright {

/// One product of tiles: c[rows][row_bytes / 4] += a * b as TDPBF16PS defines it. The operands lie
/// in whole tiles, rows 64 bytes apart.
struct TileProduct {
  int rows = 16;     ///< of a and c
  int k_pairs = 16;  ///< pairs of bf16 in a row of a, rows of b
  int columns = 16;  ///< of c
  const void* a = nullptr;
  const void* b = nullptr;
  float* c = nullptr;  ///< [16][16], of which the product's part is read and written
};

/// By the instructions: the processor must have AMX, and the system must have granted it.
void MultiplyByInstruction(const TileProduct& product);

}  // namespace tilewright
