#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tilewright {

/// Detects whether the processors did something else while a sample was taken: the threads of this
/// process lost one to others (involuntary context switches), or the host of a virtual machine took
/// time (steal). One thread at a time.
class BusyWatch {
 public:
  /// Where the kernel reports steal; another file in tests.
  explicit BusyWatch(std::string stat_path = "/proc/stat");

  void Begin();
  /// Since Begin. Kernel threads take a processor for microseconds now and then: one switch for
  /// every kQuietUs of processor time is not counted as a disturbance.
  bool Disturbed();

  static constexpr double kQuietUs = 10000;

 private:
  struct Steal {
    std::int64_t ticks = 0;  ///< of all processors together
    int processors = 0;
    std::chrono::steady_clock::time_point at;
  };
  Steal ReadSteal() const;
  struct Work {
    std::int64_t switches = 0;
    double cpu_us = 0;  ///< by all threads of the process
  };
  static Work ReadWork();

  std::string stat_path_;
  Work begin_;
  Steal steal_;  ///< as last read
};

}  // namespace tilewright
