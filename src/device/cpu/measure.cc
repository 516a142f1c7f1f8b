#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "device/cpu/caches.h"
#include "device/cpu/read_loops.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kLine = 64;
/// Touching more than this would take most of a second; a larger cache reads as this large.
constexpr std::int64_t kMaxSet = 256 * kMiB;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Writes zeros to every page from all workers, so that the pages exist and are not the shared zero
/// page.
void Touch(Executor& executor, unsigned char* data, std::int64_t bytes) {
  const auto tasks = static_cast<int>((bytes + 2 * kMiB - 1) / (2 * kMiB));
  executor.Run(tasks, [&](int task, int) {
    const std::int64_t begin = task * 2 * kMiB, end = std::min(bytes, begin + 2 * kMiB);
    for (std::int64_t at = begin; at < end; at += kLine) data[at] = 0;
  });
}

/// Nanoseconds of one load whose address needs the load before it, over `lines` (a power of two)
/// lines in an order that no prefetcher follows: a full-period linear congruence to which each
/// loaded value, always zero, is added.
double ChaseNs(const unsigned char* data, std::uint64_t lines, int loads) {
  volatile std::uint64_t sink = 0;
  std::uint64_t state = 1;
  double best = 1e9;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const double start = Seconds();
    for (int i = 0; i < loads; ++i) {
      state = (state * 6364136223846793005u + 1442695040888963407u) +
              data[(state >> 20 & (lines - 1)) * kLine];
    }
    best = std::min(best, (Seconds() - start) * 1e9 / loads);
  }
  sink = state;
  static_cast<void>(sink);
  return best;
}

// One attempt: the size up to which loads of `buffer` come from a cache, within [l2, reported].
std::int64_t EstimateLlcBytes(const Buffer& buffer, std::int64_t l2, std::int64_t reported) {
  const auto largest = static_cast<std::int64_t>(buffer.size());
  struct Point {
    std::int64_t bytes;
    double ns;
  };
  std::vector<Point> points;
  std::int64_t smallest = kMiB;
  while (smallest < 2 * l2 && smallest < largest) smallest *= 2;
  for (std::int64_t bytes = smallest; bytes <= largest; bytes *= 2) {
    WidestRead()(buffer.as<std::uint64_t>(), bytes / 8);  // brings in what fits
    const auto lines = static_cast<std::uint64_t>(bytes / kLine);
    // Enough loads that the set has been visited before the repeat that counts, few enough for the
    // time limit.
    points.push_back({bytes, ChaseNs(buffer.as<unsigned char>(), lines, 50000)});
  }
  const double near = points.front().ns, far = points.back().ns;
  // No step in the curve: everything up to the largest set is cached, or the last level is no
  // faster than memory.
  if (far < 1.3 * near) return reported;
  // A random load of a set of s bytes hits with probability cache / s, so each point on the slope
  // gives an estimate.
  std::int64_t estimate = l2;
  for (const Point& point : points) {
    const double hit = (far - point.ns) / (far - near);
    if (hit < 0.2) break;
    estimate = std::max(
        estimate, static_cast<std::int64_t>(std::min(hit, 1.0) * static_cast<double>(point.bytes)));
  }
  return std::clamp(estimate, l2, reported);
}

}  // namespace

std::int64_t MeasureLlcBytes(Executor& executor) {
  const CacheSizes caches = DetectCaches();
  const DeviceSpec defaults;
  const std::int64_t reported = caches.llc > 0 ? caches.llc : defaults.llc_bytes;
  const std::int64_t l2 = std::min(reported, caches.l2 > 0 ? caches.l2 : defaults.l2_bytes);

  std::int64_t largest = 4 * kMiB;
  while (largest < 4 * reported && largest < kMaxSet) largest *= 2;
  const Buffer buffer = Buffer::Make(static_cast<std::size_t>(largest));
  if (!buffer) return reported;
  Touch(executor, buffer.as<unsigned char>(), largest);
  constexpr int kAttempts = 3;
  std::int64_t most = l2;
  for (int attempt = 0; attempt < kAttempts && most < reported; ++attempt)
    most = std::max(most, EstimateLlcBytes(buffer, l2, reported));
  return most;
}

double MeasureReadBandwidth(Executor& executor) {
  const CacheSizes caches = DetectCaches();
  std::int64_t bytes = 64 * kMiB;
  while (bytes < 4 * caches.llc && bytes < kMaxSet) bytes *= 2;
  const Buffer buffer = Buffer::Make(static_cast<std::size_t>(bytes));
  if (!buffer) return 0;
  Touch(executor, buffer.as<unsigned char>(), bytes);

  std::atomic<std::uint64_t> sink{0};
  const std::int64_t chunk = kMiB;
  const ReadLoop read = WidestRead();
  // The median, not the best: caches of a busy host sometimes answer for a while at twice the rate.
  double rates[5];
  for (double& rate : rates) {
    const double start = Seconds();
    executor.Run(static_cast<int>(bytes / chunk), [&](int task, int) {
      const auto* words = buffer.as<const std::uint64_t>() + task * (chunk / 8);
      sink.fetch_add(read(words, chunk / 8), std::memory_order_relaxed);
    });
    rate = static_cast<double>(bytes) / (Seconds() - start) * 1e-9;
  }
  std::sort(rates, rates + 5);
  return rates[2];
}

}  // namespace tilewright
