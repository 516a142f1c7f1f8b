#include "ops/copy/cpu/copy_cpu.h"
#include "ops/copy/cpu/copy_row.h"
#include "tilewright/device.h"

namespace tilewright {

const CopyImpl kCopyAvx512{"avx512",        TILEWRIGHT_TU, kFeatureAvx512,         0.08,
                           kRowConversions, 0.10,          UnpackRows(AllBlocks{})};

}  // namespace tilewright
