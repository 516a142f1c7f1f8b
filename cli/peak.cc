#include "peak.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>

namespace tilewright::cli {
namespace {

constexpr int kRounds = 100'000;
constexpr int kChains =
    12;  // independent: covers the latency of two units at four cycles with room

// The inner loops must be unrolled to live in registers. Each keeps its accumulators alive by an
// empty asm that claims to change them.
__attribute__((target("avx512f"))) void F32Avx512() {
  __m512 sum[kChains];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  const __m512 x = _mm512_set1_ps(1.0f);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (__m512& s : sum) s = _mm512_fmadd_ps(x, x, s);
  }
  for (__m512& s : sum) asm volatile("" : "+v"(s));
}

__attribute__((target("avx2,fma"))) void F32Avx2() {
  __m256 sum[kChains];
  for (__m256& s : sum) s = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(1.0f);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (__m256& s : sum) s = _mm256_fmadd_ps(x, x, s);
  }
  for (__m256& s : sum) asm volatile("" : "+x"(s));
}

__attribute__((target("avx512f,avx512vnni"))) void I8Vnni() {
  __m512i sum[kChains];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi8(1);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (__m512i& s : sum) asm volatile("vpdpbusd %1, %1, %0" : "+v"(s) : "v"(x));
  }
}

__attribute__((target("avx2"))) void I8Avx2() {
  __m256i sum[kChains / 2];
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  const __m256i x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (__m256i& s : sum) {
      __m256i pairs;
      asm volatile("vpmaddubsw %1, %1, %0" : "=x"(pairs) : "x"(x));
      s = _mm256_add_epi32(s, _mm256_madd_epi16(pairs, ones));
    }
  }
  for (__m256i& s : sum) asm volatile("" : "+x"(s));
}

__attribute__((target("avx512f,avx512bf16"))) void Bf16Avx512() {
  __m512 sum[kChains];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  const __m512i x = _mm512_setzero_si512();
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (__m512& s : sum) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(s) : "v"(x));
  }
}

/// Four tiles of sums, two and two of operands, all 16 x 64 bytes: the shape a real kernel uses.
struct alignas(64) TileConfig {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

__attribute__((target("amx-tile"))) void ClearTiles(const TileConfig& config) {
  // GCC 12 does not know that the instruction reads all of `config`, and drops stores to it.
  asm volatile("" ::: "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
}

__attribute__((target("amx-tile,amx-int8"))) void I8Amx() {
  ClearTiles(TileConfig());
  for (int round = 0; round < kRounds / 10; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

__attribute__((target("amx-tile,amx-bf16"))) void Bf16Amx() {
  ClearTiles(TileConfig());
  for (int round = 0; round < kRounds / 10; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

struct Loop {
  Precision precision;
  std::uint32_t features;
  const char* how;
  void (*run)();
  double ops;  // of one run on one worker
};

// Best first. A multiplication and an addition are two.
constexpr double kTileOps = kRounds / 10 * 4.0 * 2 * 16 * 16;
constexpr Loop kLoops[] = {
    {Precision::kI8, kFeatureAmxInt8 | kFeatureAmxTile, "tdpbssd", I8Amx, kTileOps * 64},
    {Precision::kI8, kFeatureAvx512Vnni, "vpdpbusd", I8Vnni, kRounds* double{kChains} * 2 * 64},
    {Precision::kI8, kFeatureAvx2, "vpmaddubsw", I8Avx2, kRounds* double{kChains} * 32},
    {Precision::kBF16, kFeatureAmxBf16 | kFeatureAmxTile, "tdpbf16ps", Bf16Amx, kTileOps * 32},
    {Precision::kBF16, kFeatureAvx512Bf16, "vdpbf16ps", Bf16Avx512,
     kRounds* double{kChains} * 2 * 32},
    {Precision::kF32, kFeatureAvx512, "vfmadd zmm", F32Avx512, kRounds* double{kChains} * 2 * 16},
    {Precision::kF32, kFeatureAvx2, "vfmadd ymm", F32Avx2, kRounds* double{kChains} * 2 * 8},
};

double GigaOps(const Loop& loop, Executor& executor) {
  const int workers = executor.workers();
  double best = 0;
  for (int repeat = 0; repeat < 8; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    executor.Run(workers, [&](int, int) { loop.run(); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, loop.ops * workers / took.count() / 1e9);
  }
  return best;
}

}  // namespace

Peak MeasurePeak(const DeviceSpec& device, Executor& executor, Precision precision) {
  if (precision == Precision::kAuto) precision = Precision::kI8;
  for (const Loop& loop : kLoops) {
    if (loop.precision != precision || !device.Has(loop.features)) continue;
    return {GigaOps(loop, executor), loop.how};
  }
  if (precision == Precision::kBF16) return MeasurePeak(device, executor, Precision::kF32);
  const double one = precision == Precision::kI8 ? device.i8_gop_s : device.f32_gflop_s;
  return {one * executor.workers(), "assumed"};
}

}  // namespace tilewright::cli
