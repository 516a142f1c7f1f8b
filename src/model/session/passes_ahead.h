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

/// Passes that were given to the device and whose best tokens the host has not read yet. The passes
/// themselves write those where the host reads them (top_k::Args::found). One thread at a time.
class PassesAhead {
 public:
  /// While one is read the next runs; more would only be thrown away where a text ends.
  static constexpr int kMost = 2;

  /// For passes of up to `max_rows` rows.
  static Result<PassesAhead> Create(Device& device, std::int32_t max_rows);

  int queued() const { return queued_; }
  bool full() const { return queued_ == kMost; }

  /// Where passes of `rows` rows leave their best tokens: [rows, kMost], those of one pass adjacent.
  TensorView found(std::int32_t rows) const {
    TensorView view = Contiguous(found_.data(), DataType::kI32, {rows, kMost, 1, 1});
    view.stride[1] = static_cast<std::int64_t>(max_rows_);
    return view;
  }
  /// Which of those kMost the pass takes that is queued next.
  std::int32_t turn() const { return static_cast<std::int32_t>(next_); }

  /// The pass of `rows` rows in front in the stream took turn(). Neither waits nor allocates.
  Status Queue(std::int32_t rows, Stream stream);
  /// Waits for the oldest pass; its tokens are valid until kMost more are queued. There must be one.
  Result<std::span<const TokenId>> Receive();
  /// Nothing is queued any more. The stream must have been waited for.
  void Drop() { queued_ = 0; }

 private:
  struct Place {
    std::unique_ptr<DeviceEvent> there;
    std::int32_t rows = 0;
  };
  PassesAhead(Device& device, std::int32_t max_rows)
      : device_(&device), max_rows_(static_cast<std::size_t>(max_rows)) {}

  Device* device_;
  std::size_t max_rows_;
  DeviceMemory found_;  ///< of the host
  std::array<Place, kMost> places_;
  std::size_t next_ = 0;  ///< the place of the next pass; those queued lie in front of it
  int queued_ = 0;
};

}  // namespace tilewright
