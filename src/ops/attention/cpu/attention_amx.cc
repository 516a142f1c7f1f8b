#include "ops/attention/cpu/amx_block.h"

namespace tilewright {

AttentionFunctions AttentionAmx() { return FunctionsOnTiles<AmxTiles>(); }
const char* AttentionAmxTu() { return TILEWRIGHT_TU; }

}  // namespace tilewright
