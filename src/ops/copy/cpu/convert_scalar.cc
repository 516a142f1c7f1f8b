#include "ops/copy/cpu/convert_body.h"
#include "tilewright/device.h"

namespace tilewright {

const ConvertImpl kConvertScalar{"scalar", TILEWRIGHT_TU, 0, 1.0, &Convert};

}  // namespace tilewright
