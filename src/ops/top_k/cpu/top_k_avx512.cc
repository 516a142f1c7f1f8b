#include "ops/top_k/cpu/top_k_cpu.h"
#include "ops/top_k/cpu/top_k_row.h"
#include "tilewright/device.h"

namespace tilewright {

const TopKImpl kTopKAvx512 = MakeTopK("avx512", TILEWRIGHT_TU, kFeatureAvx512, 0.08);

}  // namespace tilewright
