#include "ops/top_k/cpu/top_k_cpu.h"
#include "ops/top_k/cpu/top_k_row.h"
#include "tilewright/device.h"

namespace tilewright {

const TopKImpl kTopKAvx2 = MakeTopK("avx2", TILEWRIGHT_TU, kFeatureAvx2, 0.12);

}  // namespace tilewright
