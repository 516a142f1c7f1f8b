#define TILEWRIGHT_F16C
#include "ops/copy/cpu/convert_body.h"
#include "tilewright/device.h"

namespace tilewright {

const ConvertImpl kConvertAvx512{"avx512", TILEWRIGHT_TU, kFeatureAvx512, 0.1, &Convert};

}  // namespace tilewright
