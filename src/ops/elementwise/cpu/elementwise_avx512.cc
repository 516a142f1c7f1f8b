#include "core/convert_row.h"
#include "ops/elementwise/cpu/elementwise_cpu.h"
#include "ops/elementwise/cpu/elementwise_row.h"
#include "tilewright/device.h"

namespace tilewright {

const ElementwiseImpl kElementwiseAvx512{"avx512",
                                         TILEWRIGHT_TU,
                                         kFeatureAvx512,
                                         0.08,
                                         0.4,
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
