#pragma once

#include <cstdint>

/// Scalar conversions between f32 and the 16-bit and 8-bit float formats: bit exact, round to
/// nearest even. Everything is `static inline` and free of std:: so that kernel files compiled for
/// an instruction set keep their own copy.

namespace tilewright {

static inline constexpr std::uint32_t BitsOfF32(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
static inline constexpr float F32FromBits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

/// Exact. Signalling NaNs become quiet, as VCVTPH2PS makes them.
static inline constexpr float F16ToF32(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    const std::uint32_t payload = (magnitude & 0x3ffu) << 13;
    return F32FromBits(sign | 0x7f800000u | payload | (payload != 0 ? 0x400000u : 0u));
  }
  if (magnitude >= 0x400u) return F32FromBits(sign | ((magnitude << 13) + (112u << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return F32FromBits(sign | BitsOfF32(subnormal));
}

/// Round to nearest even; 65520 and more become infinity; NaN stays NaN (quiet, upper payload kept,
/// as VCVTPS2PH).
static inline constexpr std::uint16_t F32ToF16(float value) {
  const std::uint32_t bits = BitsOfF32(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves the last bit of the sum at 2^-24, the subnormal step, so the
    // addition rounds.
    const std::uint32_t sum = BitsOfF32(F32FromBits(magnitude) + 0.5f);
    return static_cast<std::uint16_t>(sign | (sum - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

/// Exact.
/// 2^(e - 128) for a byte e: half of what the OCP's E8M0 means by it, for codes of twice the values.
/// GGUF has no NaN there.
static inline constexpr float HalfOfE8M0(std::uint32_t e) {
  // Below 2 it is subnormal.
  return F32FromBits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

static inline constexpr float BF16ToF32(std::uint16_t value) {
  return F32FromBits(static_cast<std::uint32_t>(value) << 16);
}

/// Round to nearest even; NaN stays NaN (quiet, upper payload kept).
static inline constexpr std::uint16_t F32ToBF16(float value) {
  const std::uint32_t bits = BitsOfF32(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Exact. 0x7f and 0xff are NaN; the format has no infinity.
static inline constexpr float E4M3ToF32(std::uint8_t value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value & 0x80u) << 24;
  const std::uint32_t magnitude = value & 0x7fu;
  if (magnitude == 0x7fu) return F32FromBits(sign | 0x7fc00000u);
  if (magnitude >= 0x08u) return F32FromBits(sign | ((magnitude << 20) + (120u << 23)));
  return F32FromBits(sign | BitsOfF32(static_cast<float>(magnitude) * 0x1p-9f));
}

/// Round to nearest even, saturating: everything beyond 448, infinity included, becomes +-448. NaN
/// stays NaN.
static inline constexpr std::uint8_t F32ToE4M3(float value) {
  const std::uint32_t bits = BitsOfF32(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < 0x3c800000u) {
    // Below 2^-6: adding 2^14 leaves the last bit of the sum at 2^-9, the subnormal step.
    const std::uint32_t sum = BitsOfF32(F32FromBits(magnitude) + 16384.0f);
    return static_cast<std::uint8_t>(sign | (sum - 0x46800000u));
  }
  const std::uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return static_cast<std::uint8_t>(sign | ((rounded - (120u << 23)) >> 20));
}

}  // namespace tilewright
