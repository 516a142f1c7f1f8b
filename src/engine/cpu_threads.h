#pragma once

#include <algorithm>

#include "tilewright/operation.h"

namespace tilewright {

/// How many workers of the executor a CPU kernel uses is its launch configuration, not part of the
/// problem: "threads=N", word 0 of LaunchConfig; 0, the default, means all.
inline constexpr ConfigField kThreadsField[] = {
    {.name = "threads", .least = 1, .most = 4096, .optional = true}};

inline LaunchConfig ThreadsConfig(int threads) {
  LaunchConfig config;
  config.words[0] = threads;
  return config;
}

/// Workers that a launch with `config` has of `all`.
inline int WorkersOf(const LaunchConfig& config, int all) {
  all = std::max(1, all);
  return config.words[0] > 0 && config.words[0] < all ? static_cast<int>(config.words[0]) : all;
}

/// Calls f(threads) for the numbers below `workers` that are worth trying, half of them, a quarter,
/// ... 1, where the model says that all together take `us`. Workers that one launch leaves asleep
/// or spinning cost the next some microseconds; beside a longer launch that does not count.
template <class F>
void ForFewerThreads(int workers, double us, F&& f) {
  constexpr double kShortUs = 20;
  if (!(us < kShortUs)) return;
  for (int threads = workers / 2; threads >= 1; threads /= 2) f(threads);
}

/// Calls launch(stream) with the workers that `config` asks for.
template <class Launch>
Status LaunchOnThreads(const LaunchConfig& config, Stream stream, Launch&& launch) {
  if (config.words[0] == 0) return launch(stream);
  LimitedExecutor limited(stream.exec(), WorkersOf(config, stream.exec().workers()));
  return launch(Stream{&limited, stream.native});
}

}  // namespace tilewright
