#include "ops/copy/cpu/copy_cpu.h"
#include "ops/copy/cpu/copy_row.h"
#include "tilewright/device.h"

namespace tilewright {

const CopyImpl kCopyScalar{"scalar",
                           TILEWRIGHT_TU,
                           0,
                           1.0,
                           {{nullptr, &Convert<AsF32, AsF16>, &Convert<AsF32, AsBF16>},
                            {&Convert<AsF16, AsF32>, nullptr, &Convert<AsF16, AsBF16>},
                            {&Convert<AsBF16, AsF32>, &Convert<AsBF16, AsF16>, nullptr}},
                           &EncodeQ8_0,
                           0.8,
                           UnpackRows(AllBlocks{})};

}  // namespace tilewright
