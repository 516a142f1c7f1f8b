#include "ops/copy/cpu/copy_cpu.h"
#include "ops/copy/cpu/copy_row.h"
#include "tilewright/device.h"

namespace tilewright {

const CopyImpl kCopyAvx512{"avx512",
                           TILEWRIGHT_TU,
                           kFeatureAvx512,
                           0.08,
                           {{nullptr, &Convert<AsF32, AsF16>, &Convert<AsF32, AsBF16>},
                            {&Convert<AsF16, AsF32>, nullptr, &Convert<AsF16, AsBF16>},
                            {&Convert<AsBF16, AsF32>, &Convert<AsBF16, AsF16>, nullptr}},
                           &EncodeQ8_0,
                           0.10,
                           UnpackRows(AllBlocks{})};

}  // namespace tilewright
