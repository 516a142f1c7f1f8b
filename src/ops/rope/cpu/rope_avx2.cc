#include "core/convert_row.h"
#include "ops/rope/cpu/rope_cpu.h"
#include "ops/rope/cpu/rope_head.h"
#include "tilewright/device.h"

namespace tilewright {

const RopeImpl kRopeAvx2{"avx2",           TILEWRIGHT_TU,  kFeatureAvx2, 0.15, &RotateInterleaved,
                         &RotateHalfSplit, kRowConversions};

}  // namespace tilewright
