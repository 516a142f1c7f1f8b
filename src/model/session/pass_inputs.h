#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/result.h"

namespace tilewright {

/// The integers that passes read: written by the host, or left by the pass in front, in device memory
/// that stays in place. What the host writes is brought there; where it can touch device memory both
/// places are one. One thread at a time.
class PassInputs {
 public:
  /// For passes of up to `max_rows` rows over a page table of `entries`.
  static Result<PassInputs> Create(Device& device, std::int32_t max_rows, std::size_t entries);

  /// In device memory.
  struct Places {
    std::int32_t* tokens = nullptr;     ///< [max_rows]
    std::int32_t* positions = nullptr;  ///< [max_rows]
    std::int32_t* slots = nullptr;      ///< [max_rows]
    std::int32_t* turns = nullptr;      ///< [max_rows]: of PassesAhead::found
    std::int32_t* wanted = nullptr;     ///< [max_rows]: rows whose logits are asked for
    std::int32_t* pages = nullptr;      ///< [entries]
  };
  Places device() const { return PlacesIn(memory_.as<std::int32_t>()); }

  /// For the host to write, before each Send. Where the host cannot touch device memory there are two
  /// places in turn, so that a pass may be written while the one before it is still to be sent; what
  /// was written before that must have been waited for.
  Places host() {
    const DeviceMemory& staging = staging_[turn_];
    return PlacesIn(staging ? staging.as<std::int32_t>() : memory_.as<std::int32_t>());
  }

  /// What is to be brought to the device. Without tokens those of the pass in front stay.
  struct Parts {
    bool tokens = true, pages = true;
  };
  /// Brings what the host wrote for `rows` rows to the device.
  Status Send(std::int32_t rows, const Parts& parts, Stream stream);

 private:
  PassInputs(Device& device, std::int32_t max_rows, std::size_t entries)
      : device_(&device), max_rows_(static_cast<std::size_t>(max_rows)), entries_(entries) {}
  Places PlacesIn(std::int32_t* base) const {
    const auto at = [&](std::size_t part) { return base + part * max_rows_; };
    return {at(0), at(1), at(2), at(3), at(4), at(kRowParts)};
  }

  static constexpr std::size_t kRowParts = 5;  ///< members of Places in front of the pages

  Device* device_;
  std::size_t max_rows_, entries_;
  DeviceMemory memory_;
  std::array<DeviceMemory, 2> staging_;  ///< empty where the host can touch device memory
  std::size_t turn_ = 0;                 ///< of staging_
};

}  // namespace tilewright
