#include "ops/copy/cpu/copy_cpu.h"
#include "ops/copy/cpu/copy_row.h"
#include "tilewright/device.h"

namespace tilewright {

const CopyImpl kCopyAvx2{"avx2",          TILEWRIGHT_TU, kFeatureAvx2,           0.10,
                         kRowConversions, 0.15,          UnpackRows(AllBlocks{})};

}  // namespace tilewright
