#include "ops/embedding/cpu/gather_body.h"
#include "tilewright/device.h"

namespace tilewright {

const GatherImpl kGatherAvx512{"avx512", TILEWRIGHT_TU, kFeatureAvx512, 0.25, &Row};

}  // namespace tilewright
