#pragma once

#include <cstdint>
#include <vector>

#include "tilewright/executor.h"
#include "tilewright/gemm.h"
#include "tilewright/result.h"

namespace tilewright {

/// Operands of a problem, made up: random of a fixed seed. For measuring and for the tuner's gate.

/// A matrix in memory and where its guard bands lie: 4 KiB of 0xff on either side.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  static Result<GuardedBuffer> Make(std::size_t bytes, const char* what);

  void* data() const { return static_cast<char*>(buffer_.data()) + kGuard; }
  std::size_t size() const { return bytes_; }
  void Poison();        ///< fills it with NaN (0xff) and renews the guards
  bool Intact() const;  ///< the guards are untouched

 private:
  static constexpr std::size_t kGuard = 4096;
  Buffer buffer_;
  std::size_t bytes_ = 0;
};

/// Which activations. Whole numbers from -127 to 127, with 127 in every 16 consecutive k, survive
/// the rounding to bf16 and to int8 blocks exactly, so that every kernel must agree with the oracle
/// as an f32 kernel does: a wrong index cannot hide in the rounding.
enum class Activations : std::uint8_t { kWholeNumbers, kRandom };

/// Fills `data` with a plain matrix of `lines` lines (rows of A; columns, or rows, of B) of
/// `length` elements each, without padding. Weights repeat a few hundred lines in an irregular
/// order: making each anew would take longer than measuring. ErrorCode::kUnsupported for a type
/// that cannot be made.
Status FillActivations(DataType type, std::int64_t lines, std::int64_t length, Activations kind,
                       std::uint64_t seed, void* data);
Status FillWeights(DataType type, std::int64_t lines, std::int64_t length, std::uint64_t seed,
                   void* data);
/// Scales near `center`; for u4 weights pairs (scale, zero), zero being a whole number from 0
/// to 15.
Status FillScales(DataType type, std::int64_t count, double center, bool pairs, std::uint64_t seed,
                  void* data);

}  // namespace tilewright
