#pragma once

// The weighted sum of values of a block of few vectors, as decoding has them, by AVX-512: values go from the cache to
// registers, where attention_tile.h converts them to memory first, which pays from many vectors on. The same operations
// on the same operands in the same order, so the same bits. (Keys so, 16 positions transposed in registers, are slower
// from memory: README.md.)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/attention/cpu/attention_tile.h"

#define TILEWRIGHT_UNROLL _Pragma("GCC unroll 8")

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file

/// Vectors of a block whose sums stay in registers.
constexpr int kMostFew = 8;
constexpr int kVector = 16;

constexpr std::size_t kQ8Elements = 32, kQ8Bytes = 34;  // a block: f16 and 32 int8

/// Bytes of `count` elements of a row, a multiple of kVector.
template <DataType kType>
constexpr std::size_t ElementBytes(std::size_t count) {
  if (kType == DataType::kQ8_0) return (count + kQ8Elements - 1) / kQ8Elements * kQ8Bytes;
  return count * (kType == DataType::kF32 ? 4 : 2);
}

/// kVector elements of a row of a cache, from a multiple of it on.
template <DataType kType>
inline __attribute__((always_inline)) __m512 LoadElements(const unsigned char* row,
                                                          std::size_t first) {
  if constexpr (kType == DataType::kQ8_0) {
    return V::HalfOfQ8(row + first / kQ8Elements * kQ8Bytes, static_cast<int>(first % kQ8Elements));
  }
  const unsigned char* at = row + ElementBytes<kType>(first);
  if constexpr (kType == DataType::kF32) return _mm512_loadu_ps(at);
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  if constexpr (kType == DataType::kF16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/// Positions from `position` to before `end` that lie one after the other, in one page.
inline int RowsInPage(const AttentionBlock& block, int position, int end) {
  const int left = end - position;
  if (block.pages == nullptr) return left;
  const int in_page = block.page_size - position % block.page_size;
  return left < in_page ? left : in_page;
}

/// Elements first to first + kVector * NV - 1 of split_out: R vectors.
template <DataType kType, int R, int NV>
void ValuesFrom(std::size_t first, const AttentionBlock& block, int from, int count,
                const AttentionScratch& s) {
  constexpr std::size_t kBytes = ElementBytes<kType>(kVector * NV);
  const std::size_t step = block.kv_row_bytes;
  __m512 sum[R][NV];
  TILEWRIGHT_UNROLL
  for (int r = 0; r < R; ++r) {
    TILEWRIGHT_UNROLL
    for (int v = 0; v < NV; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (int p = Unseen(block, from); p < count;) {
    const unsigned char* at = RowAt(block, block.values, from + p);
    int rows = RowsInPage(block, from + p, from + count);
    // Rows a piece ahead; where the block sees none, these.
    const unsigned char* ahead = at;
    if (const int later = from + p + kPiece; later < block.seen) {
      ahead = RowAt(block, block.values, later);
      const int there = RowsInPage(block, later, block.seen);
      rows = rows < there ? rows : there;
    }
    const float* weights = s.scores + p;
    p += rows;
    for (; rows > 0; --rows, at += step, ahead += step, ++weights) {
      TILEWRIGHT_UNROLL
      for (std::size_t line = 0; line < kBytes; line += 64)
        __builtin_prefetch(ahead + ElementBytes<kType>(first) + line, 0, 2);
      __m512 values[NV];
      TILEWRIGHT_UNROLL
      for (int v = 0; v < NV; ++v)
        values[v] = LoadElements<kType>(at, first + static_cast<std::size_t>(kVector * v));
      TILEWRIGHT_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m512 weight = _mm512_set1_ps(weights[r * kSplit]);
        TILEWRIGHT_UNROLL
        for (int v = 0; v < NV; ++v) sum[r][v] = _mm512_fmadd_ps(weight, values[v], sum[r][v]);
      }
    }
  }
  TILEWRIGHT_UNROLL
  for (int r = 0; r < R; ++r) {
    TILEWRIGHT_UNROLL
    for (int v = 0; v < NV; ++v)
      _mm512_storeu_ps(s.split_out + r * s.hd_padded + first + kVector * v, sum[r][v]);
  }
}

/// ValuesFrom for block.vectors and all elements.
template <DataType kType, int R = 1>
void ValuesOfFew(const AttentionBlock& block, int from, int count, const AttentionScratch& s) {
  if constexpr (R <= kMostFew) {
    if (block.vectors != R) return ValuesOfFew<kType, R + 1>(block, from, count, s);
    constexpr int kAtOnce = R <= 6 ? 4 : 2;
    const auto hd = static_cast<std::size_t>(block.head_dim);
    std::size_t first = 0;
    for (; first + kVector * kAtOnce <= hd; first += kVector * kAtOnce)
      ValuesFrom<kType, R, kAtOnce>(first, block, from, count, s);
    for (; first < hd; first += kVector) ValuesFrom<kType, R, 1>(first, block, from, count, s);
  }
}

using SumValues = void (*)(const AttentionBlock& block, int from, int count,
                           const AttentionScratch& s);

/// ValuesOfFew for the type of the block's cache; nullptr where it does not take the block.
inline SumValues SumValuesOf(const AttentionBlock& block) {
  if (block.vectors > kMostFew || block.head_dim % kVector != 0) return nullptr;
  switch (block.kv_type) {
    case DataType::kF32:
      return &ValuesOfFew<DataType::kF32>;
    case DataType::kF16:
      return &ValuesOfFew<DataType::kF16>;
    case DataType::kBF16:
      return &ValuesOfFew<DataType::kBF16>;
    default:
      return &ValuesOfFew<DataType::kQ8_0>;
  }
}

/// ComputeSplit, with the values of few vectors as above.
void ComputeFewOrMany(const AttentionBlock& block, int from, int count, const AttentionScratch& s) {
  const SumValues sum_values = SumValuesOf(block);
  if (sum_values == nullptr) return ComputeSplit(block, from, count, s);
  Scores(block, from, count, s);
  Softmax(block, from, count, s);
  sum_values(block, from, count, s);
}

}  // namespace
}  // namespace tilewright
