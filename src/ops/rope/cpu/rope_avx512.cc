#include "core/convert_row.h"
#include "ops/rope/cpu/rope_cpu.h"
#include "ops/rope/cpu/rope_head.h"
#include "tilewright/device.h"

namespace tilewright {

const RopeImpl kRopeAvx512{"avx512",           TILEWRIGHT_TU,    kFeatureAvx512, 0.10,
                           &RotateInterleaved, &RotateHalfSplit, kRowConversions};

}  // namespace tilewright
