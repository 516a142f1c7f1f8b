#pragma once

#include <cstdint>

#include "tilewright/device_spec.h"

namespace tilewright {

/// What a launch on a GPU moves and computes, for its predicted time.
struct LaunchCost {
  double memory_bytes = 0;     ///< that cross the memory bus once
  double cache_bytes = 0;      ///< that multiprocessors read from the L2 beyond those
  double in_flight_bytes = 0;  ///< that a CTA keeps on their way at a time; 0: enough
  double cta_us = 0;           ///< of one CTA with a multiprocessor to itself, memory apart
  std::int64_t ctas = 1;
  int ctas_per_sm = 1;  ///< that a multiprocessor holds
  int warps = 0;        ///< of a CTA, where few of them leave units idle; 0: they do not
};

/// The launch itself and the longest of three: the bytes from memory, at the rate that those on
/// their way allow (Little's law), all bytes from the L2, and as many rounds of CTAs as the
/// multiprocessors need. Its constants were fitted to the times of 252 problems on an H200
/// (bench/results/gpu_kernels_h200.json): the kernel that it puts first took 1.02 times as long as
/// the fastest on average, and 1.37 times at most.
double PredictUs(const LaunchCost& cost, const DeviceSpec& device);

/// How much faster multiprocessors read from the L2 than the memory's peak rate.
inline constexpr double kCacheOverMemory = 1.8;

/// Time of `operations` (a multiplication and an addition are two) on one multiprocessor of a board
/// that does `giga_rate` of 1e9 a second on all of them.
double SmUs(double operations, double giga_rate, const DeviceSpec& device);

}  // namespace tilewright
