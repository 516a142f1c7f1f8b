#pragma once

#include "tilewright/tilewright.h"

namespace tilewright {

/// The rates that predicted times on this GPU shall be made of: its spec's, which are the peak of
/// its clocks, with memory and tensor cores scaled to what this board sustains. Each is measured by
/// the best kernel of ours, replayed as a graph: reads by a product of one row, 16 bytes a load,
/// over weights of 16 times the L2; bf16 by a product of 4,096 cubed on random values. The
/// predictions assume that a board sustains kSustainedRead and kSustainedBf16 of its peak, as the
/// H200 does on which they were fitted: the rates are those of the board that would sustain there
/// what was measured. About a second, of which most is compiling; 1.1 GiB of the GPU's memory.
///
/// What `kernels` or binding them fails with; kOutOfMemory; kUnsupported for a measurement that is
/// no board's: above its peak, or below a hundredth of it.
Result<DeviceRates> CalibrateGpu(Device& device, Kernels& kernels);

inline constexpr double kSustainedRead = 0.9, kSustainedBf16 = 0.73;

}  // namespace tilewright
