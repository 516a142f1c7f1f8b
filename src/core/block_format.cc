#include "core/block_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/numeric.h"
#include "core/text.h"

namespace tilewright {
namespace {

template <class T>
T LoadAs(const unsigned char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class Out>
void DecodeBlock(const BlockQ4_0& block, Out* out) {
  const Out d = F16ToF32(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<Out>((block.qs[j] & 15) - 8);
    out[j + 16] = d * static_cast<Out>((block.qs[j] >> 4) - 8);
  }
}

template <class Out>
void DecodeBlock(const BlockQ4_1& block, Out* out) {
  const Out d = F16ToF32(block.d);
  const Out m = F16ToF32(block.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<Out>(block.qs[j] & 15) + m;
    out[j + 16] = d * static_cast<Out>(block.qs[j] >> 4) + m;
  }
}

template <class Out>
void DecodeBlock(const BlockQ8_0& block, Out* out) {
  const Out d = F16ToF32(block.d);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<Out>(block.qs[j]);
}

/// The 6-bit code, 0..63, of value `i` of a q6_k block.
int CodeQ6K(const BlockQ6_K& block, int i) {
  const int half = i / 128, s = i % 128 / 32, l = i % 32;
  const int low = block.ql[64 * half + 32 * (s & 1) + l] >> (s < 2 ? 0 : 4) & 15;
  const int high = block.qh[32 * half + l] >> (2 * s) & 3;
  return low | high << 4;
}

template <class Out>
void DecodeBlock(const BlockQ6_K& block, Out* out) {
  const Out d = F16ToF32(block.d);
  // Value i has scale i / 16: 8 * half + 2 * s + l / 16 with i = 128 * half + 32 * s + l.
  for (int i = 0; i < kBlock256; ++i) {
    out[i] = d * static_cast<Out>(block.scales[i / 16]) * static_cast<Out>(CodeQ6K(block, i) - 32);
  }
}

struct ScaleMin {
  int scale, min;
};

/// The 6-bit scale and min, 0..63, of sub-block `s` of a q4_k block.
ScaleMin ScaleMinQ4K(const BlockQ4_K& block, int s) {
  const std::uint8_t* b = block.scales;
  if (s < 4) return {b[s] & 63, b[s + 4] & 63};
  return {(b[s + 4] & 15) | (b[s - 4] >> 6) << 4, (b[s + 4] >> 4) | (b[s] >> 6) << 4};
}

template <class Out>
void DecodeBlock(const BlockQ4_K& block, Out* out) {
  const Out d = F16ToF32(block.d);
  const Out dmin = F16ToF32(block.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleMin sub = ScaleMinQ4K(block, s);
    const Out step = d * static_cast<Out>(sub.scale);
    const Out offset = dmin * static_cast<Out>(sub.min);
    for (int l = 0; l < 32; ++l) {
      const int code = block.qs[32 * (s / 2) + l] >> (4 * (s % 2)) & 15;
      out[32 * s + l] = step * static_cast<Out>(code) - offset;
    }
  }
}

template <class Block>
inline constexpr int kValuesOf = sizeof(Block) >= sizeof(BlockQ4_K) ? kBlock256 : kBlock32;

template <class Block, class Out>
void DecodeBlocks(const unsigned char* p, std::int64_t n, Out* out) {
  for (std::int64_t i = 0; i < n; i += kValuesOf<Block>, p += sizeof(Block))
    DecodeBlock(LoadAs<Block>(p), out + i);
}

template <class T, class Out, class Convert>
void DecodePlain(const unsigned char* p, std::int64_t n, Out* out, Convert convert) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<Out>(convert(LoadAs<T>(p + i * static_cast<std::int64_t>(sizeof(T)))));
  }
}

Status CheckLength(DataType type, std::int64_t n) {
  const TypeInfo& info = GetTypeInfo(type);
  if (type == DataType::kNone) return Fail(ErrorCode::kUnsupported, "type none holds no values");
  if (n < 0 || n % info.block_elements != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{} values of type {}: must be a multiple of its block of {}", n, info.name,
                       info.block_elements));
  }
  return {};
}

template <class Out>
Status Decode(DataType type, const void* source, std::int64_t n, Out* out) {
  if (Status status = CheckLength(type, n); !status) return status;
  const auto* p = static_cast<const unsigned char*>(source);
  const auto same = [](auto value) { return value; };
  switch (type) {
    case DataType::kNone:
      break;
    case DataType::kF32:
      DecodePlain<float>(p, n, out, same);
      break;
    case DataType::kF16:
      DecodePlain<std::uint16_t>(p, n, out, F16ToF32);
      break;
    case DataType::kBF16:
      DecodePlain<std::uint16_t>(p, n, out, BF16ToF32);
      break;
    case DataType::kF64:
      DecodePlain<double>(p, n, out, same);
      break;
    case DataType::kF8E4M3:
      DecodePlain<std::uint8_t>(p, n, out, E4M3ToF32);
      break;
    case DataType::kI8:
      DecodePlain<std::int8_t>(p, n, out, same);
      break;
    case DataType::kI32:
      DecodePlain<std::int32_t>(p, n, out, same);
      break;
    case DataType::kI64:
      DecodePlain<std::int64_t>(p, n, out, same);
      break;
    case DataType::kU8:
      DecodePlain<std::uint8_t>(p, n, out, same);
      break;
    case DataType::kU4:
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(p[i / 2] >> (i % 2 * 4) & 15);
      break;
    case DataType::kQ4_0:
      DecodeBlocks<BlockQ4_0>(p, n, out);
      break;
    case DataType::kQ4_1:
      DecodeBlocks<BlockQ4_1>(p, n, out);
      break;
    case DataType::kQ8_0:
      DecodeBlocks<BlockQ8_0>(p, n, out);
      break;
    case DataType::kQ6_K:
      DecodeBlocks<BlockQ6_K>(p, n, out);
      break;
    case DataType::kQ4_K:
      DecodeBlocks<BlockQ4_K>(p, n, out);
      break;
  }
  return {};
}

/// Nearest integer in [low, high], ties to even; NaN gives low, so that no conversion is undefined.
int RoundClamped(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  if (value >= static_cast<float>(high)) return high;
  return static_cast<int>(std::nearbyint(value));
}

/// The integer part of a value >= 0, at most `high`; NaN and negatives give 0. With 0.5 added
/// before, ties go up.
int TruncatedTo(float value, int high) {
  if (!(value > 0)) return 0;
  return value >= static_cast<float>(high) ? high : static_cast<int>(value);
}

/// 1 / d, or 0 for d = 0: then every quotient is zero.
float Inverse(float d) { return d != 0 ? 1.0f / d : 0.0f; }

void EncodeBlock(const float* x, BlockQ4_0& block) {
  float max = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::fabs(x[j]) > std::fabs(max)) max = x[j];
  }
  // -8 has a code and +8 has none: the extreme value gets the code -8, whatever its sign.
  const float d = max / -8;
  const float inverse = Inverse(d);
  block.d = F32ToF16(d);
  for (int j = 0; j < 16; ++j) {
    const int low = TruncatedTo(x[j] * inverse + 8.5f, 15);
    const int high = TruncatedTo(x[j + 16] * inverse + 8.5f, 15);
    block.qs[j] = static_cast<std::uint8_t>(low | high << 4);
  }
}

void EncodeBlock(const float* x, BlockQ4_1& block) {
  float min = x[0], max = x[0];
  for (int j = 1; j < 32; ++j) {
    min = std::min(min, x[j]);
    max = std::max(max, x[j]);
  }
  const float d = (max - min) / 15;
  const float inverse = Inverse(d);
  block.d = F32ToF16(d);
  block.m = F32ToF16(min);
  for (int j = 0; j < 16; ++j) {
    const int low = TruncatedTo((x[j] - min) * inverse + 0.5f, 15);
    const int high = TruncatedTo((x[j + 16] - min) * inverse + 0.5f, 15);
    block.qs[j] = static_cast<std::uint8_t>(low | high << 4);
  }
}

void EncodeBlock(const float* x, BlockQ8_0& block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(x[j]));
  const float d = largest / 127;
  block.d = F32ToF16(d);
  // A scale that vanishes in f16 decodes to zeros whatever the codes; its inverse may not be
  // finite.
  const float inverse = block.d != 0 ? 1.0f / d : 0.0f;
  for (int j = 0; j < 32; ++j)
    block.qs[j] = static_cast<std::int8_t>(RoundClamped(x[j] * inverse, -127, 127));
}

/// Scale for 16 values quantised to [-32, 31]: of 19 steps around extreme / -32, the least-squares
/// scale of the best one. The values are weighted by their squares, since a large weight's error
/// costs more than a small one's.
float BestScale16(const float* x) {
  float extreme = 0;
  for (int j = 0; j < 16; ++j) {
    if (std::fabs(x[j]) > std::fabs(extreme)) extreme = x[j];
  }
  if (extreme == 0) return 0;
  float best_scale = extreme / -32, best_gain = 0;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = -(32.0f + 0.1f * static_cast<float>(step)) / extreme;
    float xq = 0, qq = 0;
    for (int j = 0; j < 16; ++j) {
      const float q = static_cast<float>(RoundClamped(x[j] * inverse, -32, 31));
      const float weight = x[j] * x[j];
      xq += weight * x[j] * q;
      qq += weight * q * q;
    }
    // With scale xq / qq the weighted squared error is (sum of w x^2) - xq^2 / qq: the largest gain
    // has the least error.
    if (qq > 0 && xq * xq > best_gain * qq) {
      best_gain = xq * xq / qq;
      best_scale = xq / qq;
    }
  }
  return best_scale;
}

void EncodeBlock(const float* x, BlockQ6_K& block) {
  std::memset(&block, 0, sizeof block);
  float scales[16];
  float extreme = 0;
  for (int s = 0; s < 16; ++s) {
    scales[s] = BestScale16(x + 16 * s);
    if (std::fabs(scales[s]) > std::fabs(extreme)) extreme = scales[s];
  }
  const float d = extreme / -128;
  block.d = F32ToF16(d);
  const float stored_d = F16ToF32(block.d);
  const float inverse = Inverse(d);
  for (int s = 0; s < 16; ++s) {
    block.scales[s] = static_cast<std::int8_t>(RoundClamped(scales[s] * inverse, -128, 127));
    const float step = stored_d * static_cast<float>(block.scales[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      const int code = RoundClamped(x[i] * Inverse(step), -32, 31) + 32;
      const int half = i / 128, t = i % 128 / 32, l = i % 32;
      block.ql[64 * half + 32 * (t & 1) + l] |=
          static_cast<std::uint8_t>((code & 15) << (t < 2 ? 0 : 4));
      block.qh[32 * half + l] |= static_cast<std::uint8_t>(code >> 4 << (2 * t));
    }
  }
}

void EncodeBlock(const float* x, BlockQ4_K& block) {
  std::memset(&block, 0, sizeof block);
  float steps[8], mins[8];
  float largest_step = 0, largest_min = 0;
  for (int s = 0; s < 8; ++s) {
    const auto [low, high] = std::minmax_element(x + 32 * s, x + 32 * s + 32);
    mins[s] = std::max(0.0f, -*low);  // a min only lowers values: codes start at 0 or below
    steps[s] = (std::max(0.0f, *high) + mins[s]) / 15;
    largest_step = std::max(largest_step, steps[s]);
    largest_min = std::max(largest_min, mins[s]);
  }
  block.d = F32ToF16(largest_step / 63);
  block.dmin = F32ToF16(largest_min / 63);
  const float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  for (int s = 0; s < 8; ++s) {
    const int scale = RoundClamped(steps[s] * Inverse(d), 0, 63);
    const int min = RoundClamped(mins[s] * Inverse(dmin), 0, 63);
    if (s < 4) {
      block.scales[s] |= static_cast<std::uint8_t>(scale);
      block.scales[s + 4] |= static_cast<std::uint8_t>(min);
    } else {
      block.scales[s + 4] |= static_cast<std::uint8_t>((scale & 15) | (min & 15) << 4);
      block.scales[s - 4] |= static_cast<std::uint8_t>(scale >> 4 << 6);
      block.scales[s] |= static_cast<std::uint8_t>(min >> 4 << 6);
    }
    const float inverse = Inverse(d * static_cast<float>(scale));
    const float offset = dmin * static_cast<float>(min);
    for (int l = 0; l < 32; ++l) {
      const int code = RoundClamped((x[32 * s + l] + offset) * inverse, 0, 15);
      block.qs[32 * (s / 2) + l] |= static_cast<std::uint8_t>(code << (4 * (s % 2)));
    }
  }
}

template <class Block>
void EncodeBlocks(const float* source, std::int64_t n, unsigned char* out) {
  for (std::int64_t i = 0; i < n; i += kValuesOf<Block>, out += sizeof(Block)) {
    Block block;
    EncodeBlock(source + i, block);
    std::memcpy(out, &block, sizeof block);
  }
}

template <class T, class Convert>
void EncodePlain(const float* source, std::int64_t n, unsigned char* out, Convert convert) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T value = static_cast<T>(convert(source[i]));
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof value);
  }
}

}  // namespace

Status DecodeRow(DataType type, const void* source, std::int64_t n, float* out) {
  return Decode(type, source, n, out);
}

Status DecodeRow(DataType type, const void* source, std::int64_t n, double* out) {
  return Decode(type, source, n, out);
}

Status EncodeRow(DataType type, const float* source, std::int64_t n, void* out) {
  if (Status status = CheckLength(type, n); !status) return status;
  auto* p = static_cast<unsigned char*>(out);
  const auto same = [](float value) { return value; };
  switch (type) {
    case DataType::kF32:
      EncodePlain<float>(source, n, p, same);
      break;
    case DataType::kF64:
      EncodePlain<double>(source, n, p, same);
      break;
    case DataType::kF16:
      EncodePlain<std::uint16_t>(source, n, p, F32ToF16);
      break;
    case DataType::kBF16:
      EncodePlain<std::uint16_t>(source, n, p, F32ToBF16);
      break;
    case DataType::kF8E4M3:
      EncodePlain<std::uint8_t>(source, n, p, F32ToE4M3);
      break;
    case DataType::kQ4_0:
      EncodeBlocks<BlockQ4_0>(source, n, p);
      break;
    case DataType::kQ4_1:
      EncodeBlocks<BlockQ4_1>(source, n, p);
      break;
    case DataType::kQ8_0:
      EncodeBlocks<BlockQ8_0>(source, n, p);
      break;
    case DataType::kQ6_K:
      EncodeBlocks<BlockQ6_K>(source, n, p);
      break;
    case DataType::kQ4_K:
      EncodeBlocks<BlockQ4_K>(source, n, p);
      break;
    default:
      return Fail(ErrorCode::kUnsupported,
                  Format("floats cannot be encoded as {}", DataTypeName(type)));
  }
  return {};
}

}  // namespace tilewright
