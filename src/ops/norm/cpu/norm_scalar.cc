#include "ops/norm/cpu/norm_cpu.h"
#include "ops/norm/cpu/norm_row.h"
#include "tilewright/device.h"

namespace tilewright {

const NormImpl kNormScalar = MakeNorm("scalar", TILEWRIGHT_TU, 0, 0.25);

}  // namespace tilewright
