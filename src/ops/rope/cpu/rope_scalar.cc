#include "core/convert_row.h"
#include "ops/rope/cpu/rope_cpu.h"
#include "ops/rope/cpu/rope_head.h"
#include "tilewright/device.h"

namespace tilewright {

const RopeImpl kRopeScalar{"scalar",         TILEWRIGHT_TU,  0, 0.40, &RotateInterleaved,
                           &RotateHalfSplit, kRowConversions};

}  // namespace tilewright
