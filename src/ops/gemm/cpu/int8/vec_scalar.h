#pragma once

#include <cstdint>

#include "core/numeric.h"

/// The vector type of kernel files without vector instructions.

namespace tilewright::gemm_int8 {
namespace {

/// Plain C++ over arrays of sixteen columns; each 32-bit lane of I is either one int32 or four
/// codes. The fused multiply-add is the C library's, so that the bits are those of the other
/// instruction sets.
struct VecScalar {
  static constexpr int kColumns = 16;
  static constexpr int kRows = 2;
  static constexpr int kWholePanelRows = 0;  ///< a vector is a panel
  static constexpr int kAbreast = 1;
  struct F {
    float v[kColumns];
  };
  struct I {
    std::uint32_t v[kColumns];
  };

  template <class T, class Function>
  static T Each(Function function) {
    T out;
    for (int i = 0; i < kColumns; ++i) out.v[i] = function(i);
    return out;
  }

  static I Zero() { return I{}; }
  static I Load(const std::uint8_t* p) {
    I x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  static I Broadcast(const void* p) {
    std::uint32_t word;
    __builtin_memcpy(&word, p, 4);
    return Each<I>([=](int) { return word; });
  }
  static I Low4(const I& raw) {
    return Each<I>([&](int i) { return raw.v[i] & 0x0f0f0f0fu; });
  }
  static I High4(const I& raw) {
    return Each<I>([&](int i) { return raw.v[i] >> 4 & 0x0f0f0f0fu; });
  }
  static I Join6(const I& low, const I& high, int field) {
    return Each<I>([&](int i) { return low.v[i] | ((high.v[i] >> 2 * field & 0x03030303u) << 4); });
  }
  static I Field2(const I& raw, int field) {
    return Each<I>([&](int i) { return raw.v[i] >> 2 * field & 0x03030303u; });
  }
  static I FieldInPlace(const I& raw, int odd, int high) {
    return Each<I>(
        [&](int i) { return raw.v[i] >> 2 * odd & (high != 0 ? 0x30303030u : 0x03030303u); });
  }
  static I JoinBit(const I& low, const I& bits, int bit, int at) {
    return Each<I>([&](int i) { return low.v[i] | (bits.v[i] >> bit & 0x01010101u) << at; });
  }
  static I Lookup(const std::uint8_t (&table)[16], const I& codes) {
    return Each<I>([&](int i) {
      std::uint32_t values = 0;
      for (int byte = 0; byte < 32; byte += 8)
        values |= std::uint32_t{table[codes.v[i] >> byte & 0x0fu]} << byte;
      return values;
    });
  }

  static std::uint32_t Dot(std::uint32_t sum, std::uint32_t codes, std::uint32_t x) {
    for (int byte = 0; byte < 32; byte += 8) {
      sum += (codes >> byte & 0xffu) *
             static_cast<std::uint32_t>(static_cast<std::int8_t>(x >> byte & 0xffu));
    }
    return sum;
  }
  static constexpr bool kWords = false;
  static I Dot(const I& sum, const I& codes, const I& x) {
    return Each<I>([&](int i) { return Dot(sum.v[i], codes.v[i], x.v[i]); });
  }
  static I DotBroadcast(const I& sum, const I& codes, const std::uint8_t* x) {
    return Dot(sum, codes, Broadcast(x));
  }
  static I CodesOfBytes(const I& raw) { return raw; }

  static F ZeroF() { return F{}; }
  static F Set(float value) {
    return Each<F>([=](int) { return value; });
  }
  static F BroadcastF(const float* p) { return Set(*p); }
  static F LoadHalf(const std::uint8_t* p) {
    return Each<F>(
        [=](int i) { return F16ToF32(static_cast<std::uint16_t>(p[2 * i] | p[2 * i + 1] << 8)); });
  }
  static F LoadPowers(const std::uint8_t* p) {
    return Each<F>([=](int i) { return HalfOfE8M0(p[i]); });
  }
  static F LoadInt8(const std::uint8_t* p) {
    return Each<F>([=](int i) { return static_cast<float>(static_cast<std::int8_t>(p[i])); });
  }
  static F LoadLowNibbles(const std::uint8_t* p) {
    return Each<F>([=](int i) { return static_cast<float>(p[i] & 15); });
  }
  static F LoadHighNibbles(const std::uint8_t* p) {
    return Each<F>([=](int i) { return static_cast<float>(p[i] >> 4); });
  }
  static F ToFloat(const I& x) {
    return Each<F>([&](int i) { return static_cast<float>(static_cast<std::int32_t>(x.v[i])); });
  }
  static F Mul(const F& a, const F& b) {
    return Each<F>([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F Add(const F& a, const F& b) {
    return Each<F>([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F Sub(const F& a, const F& b) {
    return Each<F>([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F Div(const F& a, const F& b) {
    return Each<F>([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F Fma(const F& a, const F& b, const F& c) {
    return Each<F>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  /// Adding 1.5 * 2^23 leaves no fraction bits, so the addition rounds to nearest even; for |x| <
  /// 2^22.
  static float Nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }
  static F Round(const F& x) {
    return Each<F>([&](int i) { return Nearest(x.v[i]); });
  }
  /// As the vector instructions: NaN gives `high`.
  static F Clamp(const F& x, float low, float high) {
    return Each<F>([&](int i) {
      const float below = x.v[i] < high ? x.v[i] : high;
      return below > low ? below : low;
    });
  }
  static F PowerOfTwo(const F& n) {
    return Each<F>([&](int i) {
      return F32FromBits(static_cast<std::uint32_t>(static_cast<std::int32_t>(n.v[i]) + 127) << 23);
    });
  }
  static F LoadPart(const float* p, int count) {
    return Each<F>([=](int i) { return i < count ? p[i] : 0.0f; });
  }
  static void StorePart(float* p, const F& x, int count) {
    for (int i = 0; i < count; ++i) p[i] = x.v[i];
  }

  static constexpr bool kFourBlocks = false;
  static std::uint32_t Magnitude(const float* p) {
    std::uint32_t most = 0;
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t bits = BitsOfF32(p[i]) & 0x7fffffffu;
      if (bits > most) most = bits;
    }
    return most;
  }
  static std::int32_t Half(const float* p, float inverse, std::uint8_t* q) {
    std::int32_t sum = 0;
    for (int i = 0; i < 16; ++i) {
      const std::int32_t value =
          inverse != 0.0f ? static_cast<std::int32_t>(Nearest(p[i] * inverse)) : 0;
      q[i] = static_cast<std::uint8_t>(value);
      sum += value;
    }
    return sum;
  }
  static void Round(const float* p, float inverse, std::uint8_t* q, std::int32_t& low,
                    std::int32_t& high) {
    low = Half(p, inverse, q);
    high = Half(p + 16, inverse, q + 16);
  }
};

}  // namespace
}  // namespace tilewright::gemm_int8
