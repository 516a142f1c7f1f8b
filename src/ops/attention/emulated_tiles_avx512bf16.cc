// The kernels on tiles with the tiles emulated, for tests on any processor with AVX-512 BF16.
#include "ops/attention/cpu/amx_block.h"
#include "ops/attention/emulated_tiles.h"

namespace tilewright {

AttentionFunctions AttentionOnEmulatedTiles() { return FunctionsOnTiles<EmulatedTiles>(); }

}  // namespace tilewright
