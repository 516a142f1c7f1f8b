#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/result.h"
#include "tilewright/tensor.h"
#include "tilewright/tensor_op.h"

// Angles of the rotary embedding, for the operations that turn heads.

namespace tilewright {

inline constexpr std::string_view kRopeModeWords[] = {"interleaved", "half_split"};
constexpr std::span<const std::string_view> WordsOf(RopeMode) { return kRopeModeWords; }

namespace rope {

inline constexpr std::int32_t kMaxDims = 1024;

/// Cosines and sines of positions 0 .. positions() - 1 as f32, each the rounded cosine of the
/// float64 angle
///   position * freq_scale * base^(-2 i / dims) / factor[i],
/// where factor comes from GGUF's rope_freqs.weight, or from Llama-3's frequency scaling
/// (params.scaling_factor > 0), or is 1. Immutable after construction; any thread. Takes 4 * dims
/// bytes of device memory for each position and once more, and about 40 ns a pair to build.
class Table {
 public:
  /// `factors`: dims / 2 divisors in host memory, or nullptr. The rows are in the memory of
  /// `device`, which must outlive the table, when Make returns. kInvalidArgument for dims odd,
  /// below 2 or above kMaxDims, base <= 0, a factor that is zero or not finite, or both kinds of
  /// scaling at once; else what the device fails with. positions == 0 holds frequencies only.
  static Result<Table> Make(const RopeParams& params, const float* factors, std::int64_t positions,
                            Device& device, Stream stream);
  /// In host memory.
  static Result<Table> Make(const RopeParams& params, const float* factors, std::int64_t positions);

  const RopeParams& params() const { return params_; }
  std::int64_t positions() const { return positions_; }
  /// dims / 2 cosines, then dims / 2 sines, in the memory of the device.
  const float* Row(std::int64_t position) const {
    return rows_.as<const float>() + position * params_.dims;
  }
  /// Computes the same into host memory, for any position >= 0, also one beyond the table.
  void Compute(std::int64_t position, float* out) const;
  /// Radians a position, dims / 2 of them, in float64.
  const std::vector<double>& frequencies() const { return frequencies_; }
  /// The same as fractions of a turn in units of 2^-64, whole turns dropped, in the memory of the
  /// device: what kernels compute the angles of any position from that have no float64.
  const std::uint64_t* turns() const { return turns_.as<const std::uint64_t>(); }

 private:
  RopeParams params_;
  std::int64_t positions_ = 0;
  std::vector<double> frequencies_;
  DeviceMemory rows_, turns_;
};

/// Tables, found by their parameters and the values of the factors. One thread at a time.
class TableSet {
 public:
  /// A table of at least `positions` rows in the memory of `device`, made now if there is none; it
  /// lives as long as this object. `factors`: params.dims / 2 adjacent f32 in the memory of the
  /// device, which are read, waiting for `stream`; or without data. Fails as Table::Make does.
  Result<const Table*> Find(const RopeParams& params, const TensorView& factors,
                            std::int64_t positions, Device& device, Stream stream);

 private:
  struct Entry {
    const Device* device;
    std::vector<float> factors;
    Table table;
  };
  std::list<Entry> entries_;  // bound steps point to the tables: none is ever replaced
};

}  // namespace rope
}  // namespace tilewright
