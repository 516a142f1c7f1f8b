#include "model/session/pass_race.h"

#include <algorithm>
#include <utility>

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
  for (std::size_t which = 0; which < 2; ++which) {
    std::sort(us[which].begin(), us[which].end());
    median_us_[which] = us[which][kEach / 2];
  }
  decided_ = true;
}

Status PassRace::Run(const PreparedGraph& first, const PreparedGraph& second, Stream stream) {
  if (!decided_ && turn_ == kTurns) {
    for (std::size_t turn = kTurns - kUnread; turn < kTurns; ++turn) {
      if (Status read = Read(turn); !read) return read;
    }
    Decide();
  }
  if (decided_) {
    ran_second_ = second_us() < first_us();
    return (ran_second_ ? second : first).Run(stream);
  }
  if (turn_ >= kUnread) {
    if (Status read = Read(turn_ - kUnread); !read) return read;
  }
  const Timed& timed = timers_[turn_ % kUnread];
  ran_second_ = turn_ % 2 == 1;
  ++turn_;
  if (Status status = device_->Record(*timed.begin, stream); !status) return status;
  if (Status status = (ran_second_ ? second : first).Run(stream); !status) return status;
  return device_->Record(*timed.end, stream);
}

}  // namespace tilewright
