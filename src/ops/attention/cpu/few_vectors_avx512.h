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

template <DataType kType>
constexpr std::size_t kElementBytes = kType == DataType::kF32 ? 4 : 2;

/// kVector elements of a row of a cache.
template <DataType kType>
inline __attribute__((always_inline)) __m512 LoadElements(const unsigned char* at) {
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

/// Elements d to d + kVector * NV - 1 of split_out: R vectors.
template <DataType kType, int R, int NV>
void ValuesFrom(int d, const AttentionBlock& block, int from, int count,
                const AttentionScratch& s) {
  constexpr std::size_t kVectorBytes = kVector * kElementBytes<kType>;
  const std::size_t offset = static_cast<std::size_t>(d) * kElementBytes<kType>;
  const std::size_t step = block.kv_row_bytes;
  __m512 sum[R][NV];
  TILEWRIGHT_UNROLL
  for (int r = 0; r < R; ++r) {
    TILEWRIGHT_UNROLL
    for (int v = 0; v < NV; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (int p = Unseen(block, from); p < count;) {
    const unsigned char* at = RowAt(block, block.values, from + p) + offset;
    int rows = RowsInPage(block, from + p, from + count);
    // Rows a piece ahead; where the block sees none, these.
    const unsigned char* ahead = at;
    if (const int later = from + p + kPiece; later < block.seen) {
      ahead = RowAt(block, block.values, later) + offset;
      const int there = RowsInPage(block, later, block.seen);
      rows = rows < there ? rows : there;
    }
    const float* weights = s.scores + p;
    p += rows;
    for (; rows > 0; --rows, at += step, ahead += step, ++weights) {
      TILEWRIGHT_UNROLL
      for (std::size_t line = 0; line < NV * kVectorBytes; line += 64)
        __builtin_prefetch(ahead + line, 0, 2);
      __m512 values[NV];
      TILEWRIGHT_UNROLL
      for (int v = 0; v < NV; ++v)
        values[v] = LoadElements<kType>(at + static_cast<std::size_t>(v) * kVectorBytes);
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
      _mm512_storeu_ps(s.split_out + r * s.hd_padded + d + kVector * v, sum[r][v]);
  }
}

/// ValuesFrom for block.vectors and all elements.
template <DataType kType, int R = 1>
void ValuesOfFew(const AttentionBlock& block, int from, int count, const AttentionScratch& s) {
  if constexpr (R <= kMostFew) {
    if (block.vectors != R) return ValuesOfFew<kType, R + 1>(block, from, count, s);
    constexpr int kAtOnce = R <= 6 ? 4 : 2;
    int d = 0;
    for (; d + kVector * kAtOnce <= block.head_dim; d += kVector * kAtOnce)
      ValuesFrom<kType, R, kAtOnce>(d, block, from, count, s);
    for (; d < block.head_dim; d += kVector) ValuesFrom<kType, R, 1>(d, block, from, count, s);
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
    default:  // blocks of q8_0
      return nullptr;
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
