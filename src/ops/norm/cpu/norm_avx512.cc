#include "ops/norm/cpu/norm_cpu.h"
#include "ops/norm/cpu/norm_row.h"
#include "tilewright/device.h"

namespace tilewright {

const NormImpl kNormAvx512 = MakeNorm("avx512", TILEWRIGHT_TU, kFeatureAvx512, 0.07);

}  // namespace tilewright
