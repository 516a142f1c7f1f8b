#include "model/session/pass_race.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/log.h"

namespace tilewright {

Result<PassRace> PassRace::Create(Device& device) {
  PassRace race(device);
  for (Timed& timed : race.timers_) {
    for (std::unique_ptr<DeviceEvent>* timer : {&timed.begin, &timed.end}) {
      Result<std::unique_ptr<DeviceEvent>> made = device.CreateTimer();
      if (!made) return Fail(made.error());
      *timer = std::move(*made);
    }
  }
  return race;
}

Status PassRace::Read(std::size_t turn) {
  const Timed& timed = timers_[turn % kUnread];
  if (Status ended = device_->WaitOnHost(*timed.end); !ended) return ended;
  const Result<double> us = device_->MicrosBetween(*timed.begin, *timed.end);
  if (!us) return Fail(us.error());
  us_[turn] = *us;
  return {};
}

void PassRace::Decide() {
  std::array<std::array<double, kEach>, 2> us;
  for (std::size_t turn = kWarmUp; turn < kTurns; ++turn)
    us[turn % 2][(turn - kWarmUp) / 2] = us_[turn];
  for (auto& times : us) std::sort(times.begin(), times.end());
  const double first = us[0][kEach / 2], second = us[1][kEach / 2];
  winner_ = second < first ? 1 : 0;
  if (LogEnabled(LogLevel::kInfo)) {
    LogInfo(
        fmt::format("a token takes {:.1f} us as separate kernels and {:.1f} us with its layers "
                    "as one: {} from now on",
                    first, second, winner_ == 1 ? "one" : "separate"));
  }
}

Status PassRace::Run(const PreparedGraph& first, const PreparedGraph& second, Stream stream) {
  if (decided()) return (winner_ == 0 ? first : second).Run(stream);
  if (turn_ == kTurns) {
    for (std::size_t turn = kTurns - kUnread; turn < kTurns; ++turn) {
      if (Status read = Read(turn); !read) return read;
    }
    Decide();
    return Run(first, second, stream);
  }
  if (turn_ >= kUnread) {
    if (Status read = Read(turn_ - kUnread); !read) return read;
  }
  const Timed& timed = timers_[turn_ % kUnread];
  const PreparedGraph& graph = turn_ % 2 == 0 ? first : second;
  ++turn_;
  if (Status status = device_->Record(*timed.begin, stream); !status) return status;
  if (Status status = graph.Run(stream); !status) return status;
  return device_->Record(*timed.end, stream);
}

}  // namespace tilewright
