#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/result.h"

namespace tilewright {

/// The integers that passes read: written by the host, then brought to device memory that stays in
/// place. Where the host can touch device memory both are one. One thread at a time.
class PassInputs {
 public:
  /// For passes of up to `max_rows` rows over a page table of `entries`.
  static Result<PassInputs> Create(Device& device, std::int32_t max_rows, std::size_t entries);

  /// In device memory.
  struct Places {
    std::int32_t* tokens = nullptr;     ///< [max_rows]
    std::int32_t* positions = nullptr;  ///< [max_rows]
    std::int32_t* slots = nullptr;      ///< [max_rows]
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

  /// Brings what the host wrote for `rows` rows, and the page table where it has changed, to the
  /// device.
  Status Send(std::int32_t rows, bool with_pages, Stream stream);

 private:
  PassInputs(Device& device, std::int32_t max_rows, std::size_t entries)
      : device_(&device), max_rows_(static_cast<std::size_t>(max_rows)), entries_(entries) {}
  Places PlacesIn(std::int32_t* base) const {
    return {base, base + max_rows_, base + 2 * max_rows_, base + 3 * max_rows_,
            base + 4 * max_rows_};
  }

  Device* device_;
  std::size_t max_rows_, entries_;
  DeviceMemory memory_;
  std::array<DeviceMemory, 2> staging_;  ///< empty where the host can touch device memory
  std::size_t turn_ = 0;                 ///< of staging_
};

}  // namespace tilewright
