#include "ops/copy/cpu/copy_cpu.h"
#include "ops/copy/cpu/copy_row.h"
#include "tilewright/device.h"

namespace tilewright {

const CopyImpl kCopyScalar{"scalar", TILEWRIGHT_TU,          0, 1.0, kRowConversions,
                           0.8,      UnpackRows(AllBlocks{})};

}  // namespace tilewright
