#include "artifact/store/flights.h"

#include <chrono>
#include <utility>

namespace tilewright {

void Flights::Leader::End(std::optional<Outcome> outcome) {
  // Remove it from the map first: later callers start anew, and find the artifact in the table,
  // where it was inserted before.
  {
    const std::lock_guard lock(flights_->mutex_);
    const auto it = flights_->flights_.find(spec_);
    if (it != flights_->flights_.end() && it->second == flight_) flights_->flights_.erase(it);
  }
  {
    const std::lock_guard lock(flight_->mutex);
    flight_->over = true;
    flight_->outcome = std::move(outcome);
  }
  flight_->changed.notify_all();
  flight_.reset();
}

Flights::Joined Flights::Join(const KernelSpec& spec) {
  const std::lock_guard lock(mutex_);
  auto& place = flights_[spec];
  if (place != nullptr) return {std::nullopt, place};
  place = std::make_shared<Flight>();
  return {Leader(*this, spec, place), nullptr};
}

Flights::Wait Flights::WaitFor(Flight& flight, const CancelFn& cancelled,
                               std::optional<Outcome>& outcome) {
  std::unique_lock lock(flight.mutex);
  while (!flight.over) {
    flight.changed.wait_for(lock, std::chrono::milliseconds(50));
    if (flight.over || !cancelled) continue;
    // Without the lock, since the caller's function may do anything.
    lock.unlock();
    const bool stop = cancelled();
    lock.lock();
    if (stop && !flight.over) return Wait::kCancelled;
  }
  outcome = flight.outcome;
  return outcome ? Wait::kOutcome : Wait::kNoOutcome;
}

}  // namespace tilewright
