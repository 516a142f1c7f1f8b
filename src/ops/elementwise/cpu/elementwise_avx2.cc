#include "core/convert_row.h"
#include "ops/elementwise/cpu/elementwise_cpu.h"
#include "ops/elementwise/cpu/elementwise_row.h"
#include "tilewright/device.h"

namespace tilewright {

const ElementwiseImpl kElementwiseAvx2{"avx2",
                                       TILEWRIGHT_TU,
                                       kFeatureAvx2,
                                       0.10,
                                       0.8,
                                       &ForEach<AddOf>,
                                       &ForEach<MulOf>,
                                       &ForEach<SiluOf>,
                                       &ForEach<SwiGluOf>,
                                       &ForEach<GeluOf>,
                                       &ForEach<GeGluOf>,
                                       &ForEach<SoftcapOf>,
                                       &ForEach<ClampedSwiGluOf>,
                                       kRowConversions};

}  // namespace tilewright
