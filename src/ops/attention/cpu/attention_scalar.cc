#include <cstddef>
#include <cstdint>

#include "core/numeric.h"
#include "ops/attention/cpu/exp_constants.h"

namespace tilewright {
namespace {

/// One float as a vector of width one: the portable path.
struct V {
  static constexpr int kWidth = 1;
  static constexpr int kTileRows = 4;
  float x;

  static V Zero() { return {0.0f}; }
  static V Set(float v) { return {v}; }
  static V Load(const float* p) { return {*p}; }
  void Store(float* p) const { *p = x; }
  static V Fma(V a, V b, V c) { return {a.x * b.x + c.x}; }
  static V Add(V a, V b) { return {a.x + b.x}; }
  static V Sub(V a, V b) { return {a.x - b.x}; }
  static V Mul(V a, V b) { return {a.x * b.x}; }
  static V Max(V a, V b) { return {a.x > b.x ? a.x : b.x}; }
  static float ReduceMax(V a) { return a.x; }
  static float ReduceAdd(V a) { return a.x; }
  static float ExpScalar(float v) {
    if (v != v) return v;
    if (v < kExpLow) return 0.0f;
    const float scaled = v * kLog2E;
    const int n = static_cast<int>(scaled + (scaled >= 0 ? 0.5f : -0.5f));
    const float nf = static_cast<float>(n);
    const float r = (v - nf * kLn2High) - nf * kLn2Low;
    float p = kExpC6;
    p = p * r + kExpC5;
    p = p * r + kExpC4;
    p = p * r + kExpC3;
    p = p * r + kExpC2;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * F32FromBits(static_cast<std::uint32_t>(n + 127) << 23);
  }
  static V Exp(V a) { return {ExpScalar(a.x)}; }
  /// A block of q8_0: f16 d and 32 int8.
  static void ConvertQ8(const unsigned char* block, float* out) {
    const float d = F16ToF32(static_cast<std::uint16_t>(block[0] | (block[1] << 8)));
    const auto* q = reinterpret_cast<const signed char*>(block + 2);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i]);
  }
  static void ConvertF16(const std::uint16_t* in, int count, float* out) {
    for (int i = 0; i < count; ++i) out[i] = F16ToF32(in[i]);
  }
  /// columns[d][p] = rows[p][d] for p < positions, columns `column_ld` apart.
  static void Transpose(const float* rows, int row_ld, int hd, float* columns, int column_ld,
                        int positions) {
    for (int d = 0; d < hd; ++d)
      for (int p = 0; p < positions; ++p) columns[d * column_ld + p] = rows[p * row_ld + d];
  }
};

}  // namespace
}  // namespace tilewright

#include "ops/attention/cpu/attention_tile.h"

namespace tilewright {

AttentionFunctions AttentionScalar() { return {ComputeSplit, MergeSplit}; }
const char* AttentionScalarTu() { return TILEWRIGHT_TU; }

}  // namespace tilewright
