#pragma once

#include <cstdint>

#include "tilewright/device_spec.h"

namespace tilewright {

/// What a launch on a GPU moves and computes, for its predicted time.
struct LaunchCost {
  double memory_bytes = 0;    ///< that cross the memory bus once
  double cache_bytes = 0;     ///< that multiprocessors read from the L2 beyond those
  double in_flight_bytes = 0; ///< that a CTA keeps on their way at a time; 0: enough
  double cta_us = 0;          ///< of one CTA with a multiprocessor to itself, memory apart
  std::int64_t ctas = 1;
  int ctas_per_sm = 1;        ///< that a multiprocessor holds
};

/// The launch itself and the longer of two: moving the bytes, at the rate that those on their way
/// allow (Little's law: the bytes of 0.6 us fill the bus), and as many rounds of CTAs as the
/// multiprocessors need. Good for an order among the kernels of one problem, not for a clock.
double PredictUs(const LaunchCost& cost, const DeviceSpec& device);

/// Time of `operations` (a multiplication and an addition are two) on one multiprocessor of a board
/// that does `giga_rate` of 1e9 a second on all of them.
double SmUs(double operations, double giga_rate, const DeviceSpec& device);

}  // namespace tilewright
