#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tilewright/device.h"
#include "tilewright/result.h"
#include "tilewright/tensor.h"
#include "tilewright/tokenizer.h"

namespace tilewright {

/// Passes that were given to the device and whose best tokens the host has not read yet. One thread
/// at a time.
class PassesAhead {
 public:
  /// While one is read the next runs; more would only be thrown away where a text ends.
  static constexpr int kMost = 2;

  /// For passes of up to `max_rows` rows.
  static Result<PassesAhead> Create(Device& device, std::int32_t max_rows);

  int queued() const { return queued_; }
  bool full() const { return queued_ == kMost; }

  /// Has the stream bring the best tokens `ids` [1, rows] of the pass in front to the host. Neither
  /// waits nor allocates.
  Status Queue(const TensorView& ids, std::int32_t rows, Stream stream);
  /// Waits for the oldest pass; its tokens are valid until kMost more are queued. There must be one.
  Result<std::span<const TokenId>> Receive();
  /// The tokens of the pass queued last, received or not, for which the stream was waited.
  std::span<const TokenId> newest() const { return places_[Before(next_)].ids(); }
  /// Nothing is queued any more. The stream must have been waited for.
  void Drop() { queued_ = 0; }

 private:
  struct Place {
    DeviceMemory memory;  ///< of the host
    std::unique_ptr<DeviceEvent> there;
    std::int32_t rows = 0;
    std::span<const TokenId> ids() const {
      return {memory.as<const TokenId>(), static_cast<std::size_t>(rows)};
    }
  };
  explicit PassesAhead(Device& device) : device_(&device) {}
  static std::size_t Before(std::size_t place) { return (place + kMost - 1) % kMost; }

  Device* device_;
  std::array<Place, kMost> places_;
  std::size_t next_ = 0;  ///< the place of the next pass; those queued lie in front of it
  int queued_ = 0;
};

}  // namespace tilewright
