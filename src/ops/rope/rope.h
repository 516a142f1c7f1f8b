#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/op.h"
#include "tilewright/graph.h"

namespace tilewright {

/// Rotary embedding of `rows` rows of `heads` heads: the key of a choice.
struct RopeDesc {
  DataType type_in = DataType::kF32;
  DataType type_out = DataType::kF32;
  RopeMode mode = RopeMode::kInterleaved;
  std::int32_t rows = 1;
  std::int32_t heads = 1;
  std::int32_t head_dim = 64;
  std::int32_t dims = 64;    ///< rotated elements of a head; the rest pass through
  std::int32_t threads = 1;  ///< workers of the executor

  auto operator<=>(const RopeDesc&) const = default;
};
std::string KeyOf(const RopeDesc& desc);

inline constexpr std::int32_t kMaxRopeDims = 1024;

/// Cosines and sines of positions 0 .. positions() - 1 as f32, each the rounded cosine of the
/// float64 angle
///   position * freq_scale * base^(-2 i / dims) / factor[i],
/// where factor comes from GGUF's rope_freqs.weight, or from Llama-3's frequency scaling
/// (params.scaling_factor > 0), or is 1. Immutable after construction; any thread. Takes 4 * dims
/// bytes a position and about 40 ns a pair to build.
class RopeTable {
 public:
  /// `factors`: dims / 2 divisors, or nullptr. kInvalidArgument for dims odd, below 2 or above
  /// kMaxRopeDims, base <= 0, a factor that is zero or not finite, or both kinds of scaling at
  /// once. positions == 0 holds frequencies only.
  static Result<RopeTable> Make(const RopeParams& params, const float* factors,
                                std::int64_t positions);

  const RopeParams& params() const { return params_; }
  std::int64_t positions() const { return positions_; }
  /// dims / 2 cosines, then dims / 2 sines.
  const float* Row(std::int64_t position) const { return rows_.data() + position * params_.dims; }
  /// The same into `out` for any position >= 0: what a position beyond the table costs.
  void Compute(std::int64_t position, float* out) const;
  /// Radians a position, dims / 2 of them, in float64.
  const std::vector<double>& frequencies() const { return frequencies_; }

 private:
  RopeParams params_;
  std::int64_t positions_ = 0;
  std::vector<double> frequencies_;
  std::vector<float> rows_;
};

/// Pairs (x0, x1) of each head become (x0 cos - x1 sin, x0 sin + x1 cos); which elements pair up
/// says params.mode. qk and out [head_dim, heads, m], any head and row strides; out may be qk.
/// positions: m int32, each >= 0, checked before anything is written. factors [dims / 2] f32 or
/// without data.
struct RopeArgs {
  TensorView qk, positions, factors, out;
  RopeParams params;
  /// Made from the same params and factors (params are compared). Optional: without it every row
  /// computes its own powers, cosines and sines, some microseconds each.
  const RopeTable* table = nullptr;
};

using RopeKernel = OpKernel<RopeDesc, RopeArgs>;
using RopeRegistry = OpRegistry<RopeDesc, RopeArgs>;

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<RopeDesc> DescOf(const RopeArgs& args, int threads);

void AddRope(RopeRegistry& registry);

/// What ReferenceRope answers before it reads a position: by types, shapes and parameters alone.
Status CheckReference(const RopeArgs& args);

/// The oracle, in float64 (angles, cosines, products); any float type of qk and out, f64 included.
/// Single thread; allocates.
Status ReferenceRope(const RopeArgs& args);

}  // namespace tilewright
