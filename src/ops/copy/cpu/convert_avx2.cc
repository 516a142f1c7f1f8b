#define TILEWRIGHT_F16C
#include "ops/copy/cpu/convert_body.h"
#include "tilewright/device.h"

namespace tilewright {

const ConvertImpl kConvertAvx2{"avx2", TILEWRIGHT_TU, kFeatureAvx2, 0.12, &Convert};

}  // namespace tilewright
