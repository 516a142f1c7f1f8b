#include "ops/embedding/cpu/gather_body.h"
#include "tilewright/device.h"

namespace tilewright {

const GatherImpl kGatherAvx2{"avx2", TILEWRIGHT_TU, kFeatureAvx2, 0.3, &Row};

}  // namespace tilewright
