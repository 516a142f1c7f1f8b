#include "model/session/passes_ahead.h"

#include <utility>

namespace tilewright {

Result<PassesAhead> PassesAhead::Create(Device& device, std::int32_t max_rows) {
  PassesAhead ahead(device);
  for (Place& place : ahead.places_) {
    Result<DeviceMemory> memory =
        device.AllocateStaging(static_cast<std::size_t>(max_rows) * sizeof(TokenId));
    if (!memory) return Fail(std::move(memory.error()));
    place.memory = std::move(*memory);
    Result<std::unique_ptr<DeviceEvent>> event = device.CreateEvent();
    if (!event) return Fail(std::move(event.error()));
    place.there = std::move(*event);
  }
  return ahead;
}

Status PassesAhead::Queue(const TensorView& ids, std::int32_t rows, Stream stream) {
  Place& place = places_[next_];
  place.rows = rows;
  const std::size_t bytes = static_cast<std::size_t>(rows) * sizeof(TokenId);
  if (Status s = device_->Download(place.memory.data(), ids.data, bytes, stream); !s) return s;
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
  return place.ids();
}

}  // namespace tilewright
