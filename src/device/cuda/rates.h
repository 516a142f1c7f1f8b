#pragma once

#include "tilewright/device_spec.h"

namespace tilewright::cuda {

/// What the driver says of a board's clocks and memory. 0: unknown.
struct BoardClocks {
  int sm_khz = 0;      ///< CU_DEVICE_ATTRIBUTE_CLOCK_RATE: the highest clock of a multiprocessor
  int memory_khz = 0;  ///< CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE
  int bus_bits = 0;    ///< CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH
};

/// Peak rates of a GPU, from name, compute capability and multiprocessors of `board` and from its
/// clocks: f32 on the CUDA cores; bf16 and int8 dense on the tensor cores, bf16 with f32 sums. A
/// compute capability that is not in the table has the rates of the nearest older one of its
/// generation. A rate that nothing is known of is 0. Pure; any thread.
DeviceRates BoardRates(const DeviceSpec& board, const BoardClocks& clocks);

}  // namespace tilewright::cuda
