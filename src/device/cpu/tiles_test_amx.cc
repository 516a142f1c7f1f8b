#include "device/cpu/tiles_test_util.h"

namespace tilewright {

void MultiplyByInstruction(const TileProduct& product) { MultiplyBy<AmxTiles>(product); }

}  // namespace tilewright
