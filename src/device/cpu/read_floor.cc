#include "tilewright/read_floor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/memory.h"
#include "device/cpu/caches.h"
#include "device/cpu/cpuid.h"
#include "device/cpu/read_loops.h"
#include "tilewright/device_spec.h"

namespace tilewright {
namespace {

constexpr std::int64_t kPieceWords = (256 << 10) / 8;
/// A pass shorter than this is repeated within one parallel region: what starting one costs is no
/// part of reading.
constexpr double kShortSeconds = 300e-6;

double SecondsOf(Executor& executor, const Buffer& buffer, std::int64_t words,
                 const ReadShare& share) {
  // Kept, so that no pass can be left out.
  static std::atomic<std::uint64_t> kept{0};
  const auto start = std::chrono::steady_clock::now();
  kept.fetch_add(
      ReadTogether(executor, WidestRead(), buffer.as<const std::uint64_t>(), words, share),
      std::memory_order_relaxed);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / share.passes;
}

/// The median of some passes, after one that brings in what fits into the caches.
double MedianSeconds(Executor& executor, const Buffer& buffer, std::int64_t words, bool slices) {
  ReadShare share{.slices = slices};
  const double first = SecondsOf(executor, buffer, words, share);
  share.passes = static_cast<int>(std::clamp(kShortSeconds / std::max(first, 1e-9), 1.0, 1e5));
  double seconds[7];
  for (double& one : seconds) one = SecondsOf(executor, buffer, words, share);
  std::sort(std::begin(seconds), std::end(seconds));
  return seconds[3];
}

/// Different words, written by the worker that will read them in slices, so that their pages are
/// its own.
void Fill(Executor& executor, std::uint64_t* words, std::int64_t count) {
  const std::int64_t workers = executor.workers();
  executor.Run(static_cast<int>(workers), [&](int slice, int) {
    const std::int64_t end = count * (slice + 1) / workers;
    for (std::int64_t i = count * slice / workers; i < end; ++i)
      words[i] = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u;
  });
}

}  // namespace

std::uint64_t ReadWordsScalar(const std::uint64_t* words, std::int64_t count) {
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    a += words[i];
    b += words[i + 1];
    c += words[i + 2];
    d += words[i + 3];
  }
  for (; i < count; ++i) a += words[i];
  return a + b + c + d;
}

ReadLoop WidestRead() {
  static const ReadLoop widest = [] {
    const std::uint32_t features = FeaturesOf(ReadCpuid());
    if ((features & kFeatureAvx512) != 0) return &ReadWordsAvx512;
    return (features & kFeatureAvx2) != 0 ? &ReadWordsAvx2 : &ReadWordsScalar;
  }();
  return widest;
}

std::uint64_t ReadTogether(Executor& executor, ReadLoop loop, const std::uint64_t* words,
                           std::int64_t count, const ReadShare& share) {
  std::atomic<std::uint64_t> sum{0};
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    sum.fetch_add(loop(words + begin, end - begin), std::memory_order_relaxed);
  };
  if (share.slices) {
    const std::int64_t workers = executor.workers();
    executor.Run(static_cast<int>(workers), [&](int slice, int) {
      for (int pass = 0; pass < share.passes; ++pass)
        add(count * slice / workers, count * (slice + 1) / workers);
    });
    return sum.load();
  }
  const auto pieces = static_cast<int>((count + kPieceWords - 1) / kPieceWords);
  for (int pass = 0; pass < share.passes; ++pass) {
    executor.Run(pieces, [&](int piece, int) {
      add(piece * kPieceWords, std::min(count, (piece + 1) * kPieceWords));
    });
  }
  return sum.load();
}

double MeasureReadSeconds(Executor& executor, std::int64_t bytes) {
  if (bytes <= 0) return 0;
  // What is far larger than every cache is read at one rate.
  const std::int64_t llc = std::max(DetectCaches().llc, DeviceSpec().llc_bytes);
  const std::int64_t large = std::max(std::int64_t{2} << 30, 8 * llc);
  const auto available = static_cast<std::int64_t>(AvailableMemoryBytes() / 2);
  const std::int64_t held = std::min({bytes, large, std::max<std::int64_t>(available, 1 << 20)});
  const Buffer buffer = Buffer::Make(static_cast<std::size_t>((held + 63) / 64 * 64));
  if (!buffer) return 0;
  const std::int64_t words = (held + 7) / 8;
  Fill(executor, buffer.as<std::uint64_t>(), words);
  double seconds = MedianSeconds(executor, buffer, words, true);
  if (words >= 8 * kPieceWords * executor.workers())
    seconds = std::min(seconds, MedianSeconds(executor, buffer, words, false));
  return seconds * static_cast<double>(bytes) / static_cast<double>(held);
}

}  // namespace tilewright
