#include "ops/experts/cpu/experts_cpu.h"
#include "ops/experts/cpu/experts_rows.h"
#include "tilewright/device.h"

namespace tilewright {

const ExpertsImpl kExpertsAvx512 = MakeExperts("avx512", TILEWRIGHT_TU, kFeatureAvx512, 4.0, 0.12);

}  // namespace tilewright
