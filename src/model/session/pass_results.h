#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/model.h"
#include "tilewright/result.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// What passes leave in device memory, as the host reads it: copied to staging memory where it
/// cannot touch that of the device. What is read is valid until the next Read or Reserve of its
/// kind. One thread at a time.
class PassResults {
 public:
  explicit PassResults(Device& device) : device_(device) {}

  /// Room for logits [vocab, rows], and for converting them where they are no f32.
  Status ReserveLogits(const TensorView& logits);
  /// Room for the best logits: ids [k, rows].
  Status ReserveTop(const TensorView& ids);

  /// Waits for the stream and returns the first `rows` rows of the logits, as reserved.
  Result<std::span<const float>> ReadLogits(const TensorView& logits, std::int32_t rows,
                                            Stream stream);
  /// The same for contiguous ids and values; these may be nullptr.
  Result<TopLogits> ReadTop(const TensorView& ids, const TensorView* values, std::int32_t rows,
                            Stream stream);

 private:
  Status Reserve(DeviceMemory& memory, std::size_t bytes);

  Device& device_;
  DeviceMemory logits_, top_;     // staging; top_: ids, then values
  std::vector<float> as_floats_;  // logits of another type than f32
};

}  // namespace tilewright
