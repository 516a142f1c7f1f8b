#include "model/session/passes_ahead.h"

#include <utility>

namespace tilewright {

Result<PassesAhead> PassesAhead::Create(Device& device, std::int32_t max_rows) {
  PassesAhead ahead(device, max_rows);
  Result<DeviceMemory> memory =
      device.AllocateStaging(kMost * ahead.max_rows_ * sizeof(std::int32_t));
  if (!memory) return Fail(std::move(memory.error()));
  ahead.found_ = std::move(*memory);
  for (Place& place : ahead.places_) {
    Result<std::unique_ptr<DeviceEvent>> event = device.CreateEvent();
    if (!event) return Fail(std::move(event.error()));
    place.there = std::move(*event);
  }
  return ahead;
}

Status PassesAhead::Queue(std::int32_t rows, Stream stream) {
  Place& place = places_[next_];
  place.rows = rows;
  if (Status s = device_->Record(*place.there, stream); !s) return s;
  next_ = (next_ + 1) % kMost;
  ++queued_;
  return {};
}

Result<std::span<const TokenId>> PassesAhead::Receive() {
  const std::size_t oldest = (next_ + 2 * kMost - static_cast<std::size_t>(queued_)) % kMost;
  const Place& place = places_[oldest];
  if (Status s = device_->WaitOnHost(*place.there); !s) return Fail(s.error());
  --queued_;
  return std::span<const TokenId>(found_.as<const TokenId>() + oldest * max_rows_,
                                  static_cast<std::size_t>(place.rows));
}

}  // namespace tilewright
