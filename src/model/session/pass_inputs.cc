#include "model/session/pass_inputs.h"

#include <algorithm>
#include <utility>

namespace tilewright {

Result<PassInputs> PassInputs::Create(Device& device, std::int32_t max_rows, std::size_t entries) {
  PassInputs inputs(device, max_rows, entries);
  const std::size_t count = kRowParts * inputs.max_rows_ + entries;
  Result<DeviceMemory> memory = device.Allocate(count * sizeof(std::int32_t));
  if (!memory) return Fail(std::move(memory.error()));
  inputs.memory_ = std::move(*memory);
  for (DeviceMemory& place : inputs.staging_) {
    if (device.host_accessible()) break;
    Result<DeviceMemory> staging = device.AllocateStaging(count * sizeof(std::int32_t));
    if (!staging) return Fail(std::move(staging.error()));
    place = std::move(*staging);
    std::fill_n(place.as<std::int32_t>(), count, 0);
  }
  if (device.host_accessible()) std::fill_n(inputs.memory_.as<std::int32_t>(), count, 0);
  return inputs;
}

Status PassInputs::Send(std::int32_t rows, const Parts& parts, Stream stream) {
  if (device_->host_accessible()) return {};
  const Places from = host(), to = device();
  const auto send = [&](std::int32_t* target, const std::int32_t* source, std::size_t count) {
    return device_->Upload(target, source, count * sizeof(std::int32_t), stream);
  };
  // One transfer with what lies between the rows: beginning five takes longer than the bytes do.
  const std::size_t first = parts.tokens ? 0 : max_rows_;
  const std::size_t count = (kRowParts - 1) * max_rows_ - first + static_cast<std::size_t>(rows);
  if (Status s = send(to.tokens + first, from.tokens + first, count); !s) return s;
  turn_ ^= 1;
  return parts.pages ? send(to.pages, from.pages, entries_) : Status();
}

}  // namespace tilewright
