#include "engine/compiled/launch_cost.h"

#include <algorithm>
#include <cmath>

namespace tilewright {

double SmUs(double operations, double giga_rate, const DeviceSpec& device) {
  const double sms = std::max(device.sm_count, 1);
  return operations / (std::max(giga_rate, 1.0) / sms * 1e3);
}

double PredictUs(const LaunchCost& cost, const DeviceSpec& device) {
  constexpr double kLaunchUs = 2.0, kLatencyUs = 0.6;
  // As measured on H100 and H200: twice and more of what the memory gives.
  constexpr double kCacheOverMemory = 2.2;
  const double bytes_a_us = std::max(device.read_gb_s, 1.0) * 1e3;
  const double sms = std::max(device.sm_count, 1);
  const double slots = sms * std::max(cost.ctas_per_sm, 1);
  const double ctas = static_cast<double>(cost.ctas);

  double share = 1;  // of the bus that is filled
  if (cost.in_flight_bytes > 0) {
    const double in_flight = std::min(ctas, slots) * cost.in_flight_bytes;
    share = std::min(1.0, in_flight / (bytes_a_us * kLatencyUs));
  }
  const double memory_us = cost.memory_bytes / (bytes_a_us * share);
  const double cache_us = (cost.memory_bytes + cost.cache_bytes) / (bytes_a_us * kCacheOverMemory);
  // CTAs beside each other share what their multiprocessor can do.
  const double rounds = std::ceil(ctas / slots);
  const double beside = std::min<double>(std::max(cost.ctas_per_sm, 1), std::ceil(ctas / sms));
  const double compute_us = cost.cta_us * rounds * beside;
  return kLaunchUs + std::max({memory_us, cache_us, compute_us});
}

}  // namespace tilewright
