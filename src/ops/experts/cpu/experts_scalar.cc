#include "ops/experts/cpu/experts_cpu.h"
#include "ops/experts/cpu/experts_rows.h"
#include "tilewright/device.h"

namespace tilewright {

const ExpertsImpl kExpertsScalar = MakeExperts("scalar", TILEWRIGHT_TU, 0, 4.0, 0.4);

}  // namespace tilewright
