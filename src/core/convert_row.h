#pragma once

#include "core/block_format.h"
#include "core/i8x32.h"
#include "core/row_conversions.h"
#include "core/simd.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

/// Elements of a type in memory, kLanes or one at a time, as f32: what a kernel that is written
/// once for several types takes as a template argument.
struct AsF32 {
  typedef float Type;
  static F32Vec Load(const float* p) { return LoadVec(p); }
  static void Store(float* p, F32Vec v) { StoreVec(p, v); }
  static float LoadOne(const float* p) { return *p; }
  static void StoreOne(float* p, float x) { *p = x; }
};
struct AsF16 {
  typedef std::uint16_t Type;
  static F32Vec Load(const std::uint16_t* p) { return LoadF16(p); }
  static void Store(std::uint16_t* p, F32Vec v) { StoreF16(p, v); }
  static float LoadOne(const std::uint16_t* p) { return F16ToF32(*p); }
  static void StoreOne(std::uint16_t* p, float x) { *p = F32ToF16(x); }
};
struct AsBF16 {
  typedef std::uint16_t Type;
  static F32Vec Load(const std::uint16_t* p) { return LoadBF16(p); }
  static void Store(std::uint16_t* p, F32Vec v) { StoreBF16(p, v); }
  static float LoadOne(const std::uint16_t* p) { return BF16ToF32(*p); }
  static void StoreOne(std::uint16_t* p, float x) { *p = F32ToBF16(x); }
};

template <class From, class To>
void Convert(const void* source, void* target, std::int64_t n) {
  const auto* in = static_cast<const typename From::Type*>(source);
  auto* out = static_cast<typename To::Type*>(target);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) To::Store(out + i, From::Load(in + i));
  if (i == n) return;
  typename From::Type in_lanes[kLanes] = {};
  typename To::Type out_lanes[kLanes];
  for (std::int64_t j = i; j < n; ++j) in_lanes[j - i] = in[j];
  To::Store(out_lanes, From::Load(in_lanes));
  for (std::int64_t j = i; j < n; ++j) out[j] = out_lanes[j - i];
}

/// out[32] = x * inverse to nearest even, by the magic addition of ExpNonPositive.
inline void PutCodes32(const float* x, float inverse, unsigned char* out) {
  for (int j = 0; j < 32; j += kLanes) {
    const F32Vec shifted = LoadVec(x + j) * inverse + 12582912.0f;
    I32Vec bits;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    StoreI8(out + j, bits - 0x4b400000);
  }
}

/// Blocks of 32: d = max|x| / 127.
void EncodeQ8_0(const void* source, void* target, std::int64_t n) {
  const auto* in = static_cast<const float*>(source);
  auto* out = static_cast<unsigned char*>(target);
  for (std::int64_t i = 0; i < n; i += BlockQ8_0::kFormat.elements, out += sizeof(BlockQ8_0)) {
    F32Vec largest_lanes = {};
    for (int j = 0; j < BlockQ8_0::kFormat.elements; j += kLanes) {
      F32Vec x = LoadVec(in + i + j);
      x = SelectVec(x < Splat(0.0f), -x, x);
      largest_lanes = SelectVec(x > largest_lanes, x, largest_lanes);
    }
    float lanes[kLanes];
    StoreVec(lanes, largest_lanes);
    float largest = 0;
    for (int l = 0; l < kLanes; ++l) largest = lanes[l] > largest ? lanes[l] : largest;

    const float d = largest / 127;
    const std::uint16_t stored = F32ToF16(d);
    const float inverse = stored != 0 ? 1.0f / d : 0.0f;
    __builtin_memcpy(out, &stored, sizeof stored);
    PutCodes32(in + i, inverse, out + 2);
  }
}

/// Encode of core/i8x32.h.
void EncodeI8x32(const void* source, void* target, std::int64_t n) {
  const auto* in = static_cast<const float*>(source);
  auto* out = static_cast<unsigned char*>(target);
  for (std::int64_t i = 0; i < n; i += BlockI8x32::kElements, out += sizeof(BlockI8x32)) {
    I32Vec largest = {};
    for (int j = 0; j < BlockI8x32::kElements; j += kLanes) {
      I32Vec bits;
      __builtin_memcpy(&bits, in + i + j, sizeof bits);
      bits &= 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
    float d, inverse;
    ScaleOfI8x32(static_cast<std::uint32_t>(MaxLane(largest)), d, inverse);
    __builtin_memcpy(out, &d, sizeof d);
    if (inverse != 0.0f) {
      PutCodes32(in + i, inverse, out + sizeof d);
    } else {
      __builtin_memset(out + sizeof d, 0, BlockI8x32::kElements);
    }
  }
}

constexpr RowConversions kRowConversions{
    {{nullptr, &Convert<AsF32, AsF16>, &Convert<AsF32, AsBF16>},
     {&Convert<AsF16, AsF32>, nullptr, &Convert<AsF16, AsBF16>},
     {&Convert<AsBF16, AsF32>, &Convert<AsBF16, AsF16>, nullptr}},
    &EncodeQ8_0,
    &EncodeI8x32};

}  // namespace
}  // namespace tilewright
