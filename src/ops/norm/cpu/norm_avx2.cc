#include "ops/norm/cpu/norm_cpu.h"
#include "ops/norm/cpu/norm_row.h"
#include "tilewright/device.h"

namespace tilewright {

const NormImpl kNormAvx2 = MakeNorm("avx2", TILEWRIGHT_TU, kFeatureAvx2, 0.10);

}  // namespace tilewright
