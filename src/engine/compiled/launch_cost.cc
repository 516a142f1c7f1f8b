#include "engine/compiled/launch_cost.h"

#include <algorithm>
#include <cmath>

namespace tilewright {
namespace {

constexpr double kLaunchUs = 2.5;
constexpr double kRoundUs = 1.5;          // to fill and drain the pipeline of a CTA
constexpr double kReachedOfMemory = 0.8;  // of the peak rate
constexpr double kLatencyUs = 1;          // of the memory under load: what must be on its way
constexpr double kEnoughWarps = 8;        // on a multiprocessor

}  // namespace

double SmUs(double operations, double giga_rate, const DeviceSpec& device) {
  const double sms = std::max(device.sm_count, 1);
  return operations / (std::max(giga_rate, 1.0) / sms * 1e3);
}

double PredictUs(const LaunchCost& cost, const DeviceSpec& device) {
  const double peak_bytes_a_us = std::max(device.read_gb_s, 1.0) * 1e3;
  const double bytes_a_us = kReachedOfMemory * peak_bytes_a_us;
  const double sms = std::max(device.sm_count, 1);
  const double held = std::max(cost.ctas_per_sm, 1);
  const double ctas = static_cast<double>(cost.ctas);

  const double warps = cost.warps * std::min(held, ctas / sms);
  const double busy = cost.warps > 0 ? std::min(1.0, warps / kEnoughWarps) : 1;
  const double in_flight = std::min(ctas, sms * held) * cost.in_flight_bytes;
  const double filled =
      cost.in_flight_bytes > 0 ? std::min(1.0, in_flight / (bytes_a_us * kLatencyUs)) : 1;
  const double memory_us = cost.memory_bytes / (bytes_a_us * filled * busy);
  const double cache_us =
      (cost.memory_bytes + cost.cache_bytes) / (kCacheOverMemory * peak_bytes_a_us);
  // CTAs beside each other share what their multiprocessor can do.
  const double rounds = std::ceil(ctas / (sms * held));
  const double beside = std::min(held, std::ceil(ctas / sms));
  const double compute_us = rounds * (kRoundUs + cost.cta_us * beside / busy);
  return kLaunchUs + std::max({memory_us, cache_us, compute_us});
}

}  // namespace tilewright
