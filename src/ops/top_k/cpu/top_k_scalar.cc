#include "ops/top_k/cpu/top_k_cpu.h"
#include "ops/top_k/cpu/top_k_row.h"
#include "tilewright/device.h"

namespace tilewright {

const TopKImpl kTopKScalar = MakeTopK("scalar", TILEWRIGHT_TU, 0, 0.40);

}  // namespace tilewright
