#include "ops/experts/cpu/experts_cpu.h"
#include "ops/experts/cpu/experts_rows.h"
#include "tilewright/device.h"

namespace tilewright {

const ExpertsImpl kExpertsAvx2 = MakeExperts("avx2", TILEWRIGHT_TU, kFeatureAvx2, 4.0, 0.15);

}  // namespace tilewright
