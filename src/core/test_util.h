#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "core/random.h"
#include "tilewright/types.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::test {

/// `bytes` of memory between two guard bands, filled with 0xff, which is NaN in every float format
/// used here. `misalign` shifts the start from 64-byte alignment by that many bytes. The guards
/// hold
/// NaN too, so if a kernel reads beyond its operand and uses the values, its result shows it.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t bytes, std::size_t misalign = 0)
      : bytes_(bytes), memory_(kGuard + misalign + bytes + kGuard + 64, std::byte{0xff}) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard;
    offset_ = kGuard + ((64 - address % 64) % 64) + misalign;
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  GuardedBytes(GuardedBytes&&) = default;
  GuardedBytes& operator=(GuardedBytes&&) = default;

  void* data() { return memory_.data() + offset_; }
  const void* data() const { return memory_.data() + offset_; }
  std::size_t size() const { return bytes_; }
  void Poison() { std::memset(data(), 0xff, bytes_); }

  /// "" if nothing outside the buffer was written, else names the first byte that was.
  std::string Damage() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (i >= offset_ && i < offset_ + bytes_) continue;
      if (memory_[i] != std::byte{0xff}) {
        return "byte " +
               std::to_string(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(offset_)) +
               " of a buffer of " + std::to_string(bytes_) + " was written";
      }
    }
    return {};
  }

 private:
  static constexpr std::size_t kGuard = 4096;
  std::size_t bytes_ = 0;
  std::size_t offset_ = 0;
  std::vector<std::byte> memory_;
};

/// The same for `count` elements of T.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, std::size_t misalign_bytes = 0)
      : bytes_(count * sizeof(T), misalign_bytes) {}
  explicit Guarded(const std::vector<T>& values, std::size_t misalign_bytes = 0)
      : Guarded(values.size(), misalign_bytes) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  T* data() { return static_cast<T*>(bytes_.data()); }
  const T* data() const { return static_cast<const T*>(bytes_.data()); }
  std::size_t size() const { return bytes_.size() / sizeof(T); }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  void Poison() { bytes_.Poison(); }
  std::string Damage() const { return bytes_.Damage(); }

 private:
  GuardedBytes bytes_;
};

/// `values` as `type` holds them, and back: what a kernel reads or writes of another type than f32.
inline GuardedBytes Encoded(DataType type, std::span<const float> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  GuardedBytes bytes(BytesOf(type, n));
  static_cast<void>(EncodeRow(type, values.data(), n, bytes.data()));
  return bytes;
}
inline std::vector<float> Decoded(DataType type, const GuardedBytes& bytes, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  static_cast<void>(DecodeRow(type, bytes.data(), n, values.data()));
  return values;
}
inline constexpr DataType kFloatTypes[] = {DataType::kF32, DataType::kF16, DataType::kBF16};

inline std::vector<float> RandomFloats(std::size_t count, std::uint64_t seed, double scale = 1.0) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Normal() * scale);
  return values;
}

/// Whole numbers in [-limit, limit]. Sums of their products are exact in f32 as long as they stay
/// below 2^24, so any summation order gives the same bits.
inline std::vector<float> RandomIntegers(std::size_t count, std::uint64_t seed, int limit = 4) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Between(-limit, limit));
  return values;
}

/// A row-major [rows][cols] matrix of any type with normally distributed values of deviation
/// `scale`, and its exact values [rows][cols] in f64. Rows have `ld` >= cols elements (0 means
/// cols; both are multiples of the block). Bytes between cols and ld are 0xff. Integer types get
/// uniformly distributed codes.
struct RandomMatrix {
  RandomMatrix(DataType dtype, std::int64_t row_count, std::int64_t col_count, std::uint64_t seed,
               double scale = 1.0, std::int64_t leading = 0)
      : type(dtype),
        rows(row_count),
        cols(col_count),
        ld(leading == 0 ? col_count : leading),
        bytes(static_cast<std::size_t>(row_count) * BytesOf(dtype, ld)),
        values(static_cast<std::size_t>(row_count * col_count)) {
    Random random(seed);
    const std::size_t row_bytes = BytesOf(type, ld);
    std::vector<float> row(static_cast<std::size_t>(cols));
    for (std::int64_t r = 0; r < rows; ++r) {
      auto* target =
          static_cast<unsigned char*>(bytes.data()) + static_cast<std::size_t>(r) * row_bytes;
      for (float& value : row) value = static_cast<float>(random.Normal() * scale);
      if (!EncodeRow(type, row.data(), cols, target)) {
        for (std::size_t i = 0; i < BytesOf(type, cols); ++i)
          target[i] = static_cast<unsigned char>(random.Next() >> 56);
      }
      static_cast<void>(DecodeRow(type, target, cols, values.data() + r * cols));
    }
  }

  DataType type;
  std::int64_t rows, cols, ld;
  GuardedBytes bytes;
  std::vector<double> values;  ///< [rows][cols]
};

/// ||got - want|| / ||want|| in f64; infinity if any `got` is not finite; the plain norm of the
/// difference if want is all zero.
template <class Got, class Want>
double RelativeL2(std::span<const Got> got, std::span<const Want> want) {
  if (got.size() != want.size()) return HUGE_VAL;
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    if (!std::isfinite(difference)) return HUGE_VAL;
    error += difference * difference;
    norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}
inline double RelativeL2(const std::vector<float>& got, const std::vector<double>& want) {
  return RelativeL2(std::span<const float>(got), std::span<const double>(want));
}

/// Largest |got - want|; infinity if any `got` is not finite.
template <class Got, class Want>
double MaxAbsError(std::span<const Got> got, std::span<const Want> want) {
  if (got.size() != want.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (!std::isfinite(difference)) return HUGE_VAL;
    if (difference > largest) largest = difference;
  }
  return largest;
}

/// Distance of an f32 from an exact value, in units of the last place of f32 at that value.
inline double UlpError(float got, double want) {
  if (std::isnan(got) && std::isnan(want)) return 0;
  const float rounded = static_cast<float>(want);
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : HUGE_VAL;
  const float magnitude = std::fabs(rounded) < 0x1p-126f ? 0x1p-126f : std::fabs(rounded);
  const double ulp = std::ldexp(1.0, std::ilogb(magnitude) - 23);
  return std::fabs(static_cast<double>(got) - want) / ulp;
}

/// Whether the bytes are equal: distinguishes -0 from 0 and compares NaNs by their bits.
inline bool BitwiseEqual(const void* a, const void* b, std::size_t bytes) {
  return std::memcmp(a, b, bytes) == 0;
}

}  // namespace tilewright::test
