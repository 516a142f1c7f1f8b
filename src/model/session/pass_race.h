#pragma once

#include <array>
#include <memory>

#include "tilewright/device.h"
#include "tilewright/prepared_graph.h"

namespace tilewright {

/// Two graphs that do the same work. Each runs some of the first passes, in turn and timed on the
/// device; the one that took less time runs all others. It is the passes that are wanted anyway that
/// are raced: none runs twice. One thread at a time.
class PassRace {
 public:
  /// kUnsupported where the device has no timers.
  static Result<PassRace> Create(Device& device);

  /// Queues the next pass by one of them. Waits for nothing but timers of passes that have ended
  /// long before, and allocates nothing.
  Status Run(const PreparedGraph& first, const PreparedGraph& second, Stream stream);
  /// Whether the last pass ran by the second.
  bool ran_second() const { return ran_second_; }
  bool decided() const { return decided_; }
  /// Microseconds of a pass by the first and by the second, medians; once it is decided.
  double first_us() const { return median_us_[0]; }
  double second_us() const { return median_us_[1]; }

 private:
  explicit PassRace(Device& device) : device_(&device) {}
  static constexpr std::size_t kEach = 8;    ///< passes of each that count
  static constexpr std::size_t kWarmUp = 4;  ///< passes in front of them
  static constexpr std::size_t kUnread = 4;  ///< passes whose times are read later: two are queued
  static constexpr std::size_t kTurns = kWarmUp + 2 * kEach;
  struct Timed {
    std::unique_ptr<DeviceEvent> begin, end;
  };
  Status Read(std::size_t turn);
  void Decide();

  Device* device_;
  std::array<Timed, kUnread> timers_;
  std::array<double, kTurns> us_{};
  std::array<double, 2> median_us_{};
  std::size_t turn_ = 0;
  bool decided_ = false, ran_second_ = false;
};

}  // namespace tilewright
