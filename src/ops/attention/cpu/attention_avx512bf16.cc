#include "ops/attention/cpu/amx_block.h"

namespace tilewright {

AttentionFunctions AttentionAvx512Bf16() { return FunctionsOnTiles<VectorTiles>(); }
const char* AttentionAvx512Bf16Tu() { return TILEWRIGHT_TU; }

}  // namespace tilewright
