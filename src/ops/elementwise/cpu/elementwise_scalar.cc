#include "core/convert_row.h"
#include "ops/elementwise/cpu/elementwise_cpu.h"
#include "ops/elementwise/cpu/elementwise_row.h"
#include "tilewright/device.h"

namespace tilewright {

const ElementwiseImpl kElementwiseScalar{"scalar",
                                         TILEWRIGHT_TU,
                                         0,
                                         0.20,
                                         2.5,
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
