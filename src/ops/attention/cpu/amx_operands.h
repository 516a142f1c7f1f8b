#pragma once

// Queries, keys and values of a block of attention as tiles of bf16 (amx_block.h).

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "core/numeric.h"
#include "device/cpu/tiles.h"
#include "ops/attention/cpu/amx_scratch.h"
#include "ops/attention/cpu/layout.h"
#include "ops/attention/cpu/transpose_avx512.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file

constexpr int kChunk = kAmxChunk;           // positions: what one product of weights sums over
constexpr int kLane = 16;                   // vectors of a tile
constexpr int kGroup = kAmxGroup;           // vectors that are computed together: two tiles
constexpr int kTileWords = kTileBytes / 2;  // bf16 of a tile

// --- Conversions -------------------------------------------------------------------------------

inline __m512i PairToBF16(__m512 high, __m512 low) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

inline __mmask16 First16(int count) {
  return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << (count > 0 ? count : 0)) - 1);
}
inline __mmask32 First32(int count) {
  return count >= 32 ? 0xffffffffu : (1u << (count > 0 ? count : 0)) - 1;
}

/// Elements d .. d + 31 of a row of a cache as bf16, zeros from `hd` on.
inline __m512i Load32(DataType type, const unsigned char* row, int d, int hd) {
  const int left = hd - d;
  switch (type) {
    case DataType::kBF16:
      return _mm512_maskz_loadu_epi16(First32(left), row + 2 * d);
    case DataType::kF16: {
      const __m512i half = _mm512_maskz_loadu_epi16(First32(left), row + 2 * d);
      return PairToBF16(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)),
                        _mm512_cvtph_ps(_mm512_castsi512_si256(half)));
    }
    case DataType::kF32: {
      const auto* at = reinterpret_cast<const float*>(row) + d;
      return PairToBF16(_mm512_maskz_loadu_ps(First16(left - 16), at + 16),
                        _mm512_maskz_loadu_ps(First16(left), at));
    }
    default: {  // q8_0: blocks of f16 d and 32 int8
      const unsigned char* block = row + d / 32 * 34;
      const __m512 scale =
          _mm512_set1_ps(F16ToF32(static_cast<std::uint16_t>(block[0] | (block[1] << 8))));
      const auto part = [&](int i) {
        const __m128i q = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2 + 16 * i));
        return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)), scale);
      };
      return PairToBF16(part(1), part(0));
    }
  }
}

/// Where the positions of a split lie.
class SplitRows {
 public:
  SplitRows(const AttentionBlock& block, const unsigned char* base, int from, int count)
      : block_(block), base_(base), from_(from) {
    begin_ = block.from > from ? block.from - from : 0;
    end_ = count;
  }
  /// nullptr: no row of the block sees this position of the split, which may not exist.
  const unsigned char* At(int i) const {
    return i < begin_ || i >= end_ ? nullptr : RowAt(block_, base_, from_ + i);
  }
  /// Whether 16 positions from `i` on are there and lie one after the other.
  bool InOnePiece(int i) const {
    if (i < begin_ || i + kLane > end_) return false;
    return block_.pages == nullptr || (from_ + i) % block_.page_size + kLane <= block_.page_size;
  }
  int begin() const { return begin_; }
  int end() const { return end_; }

 private:
  const AttentionBlock& block_;
  const unsigned char* base_;
  int from_, begin_, end_;
};

// --- Operands ----------------------------------------------------------------------------------

/// q^T of 16 vectors, from `first` on, as second operands: [hd / 32] tiles of [pair of hd][vector][2].
inline void PackQueries(int first, const AttentionScratch& s) {
  const AmxScratch amx = CarveAmx(s);
  const int hd = s.hd_padded;
  for (int d = 0; d < hd; d += 32) {
    __m512 rows[16];
    for (int i = 0; i < kLane; ++i) {
      const float* q = s.q + i * hd + d;
      rows[i] = reinterpret_cast<__m512>(PairToBF16(_mm512_loadu_ps(q + 16), _mm512_loadu_ps(q)));
    }
    TransposeInRegisters(rows);
    std::uint16_t* tile = amx.queries + (first / kLane * (hd / 32) + d / 32) * kTileWords;
    for (int i = 0; i < 16; ++i)
      _mm512_store_si512(tile + 32 * i, reinterpret_cast<__m512i>(rows[i]));
  }
}

/// 16 positions of keys, first operands of every 32 elements.
struct KeyTile {
  const unsigned char* at;
  std::ptrdiff_t stride;  ///< bytes between positions
  std::ptrdiff_t step;    ///< bytes between 32 elements and the next
};

/// Fewer vectors than this read keys of bf16 as they lie. More are worth a copy in whole tiles: rows at
/// a large power of two apart share a few sets of the cache, which took a quarter more time.
constexpr int kCopiedFrom = 128;

/// Keys of the split as tiles [hd / 32][position][32]; what nobody sees is zero.
inline void FindKeys(const AttentionBlock& block, const SplitRows& rows, const AttentionScratch& s,
                     KeyTile* keys) {
  const AmxScratch amx = CarveAmx(s);
  const int hd = s.hd_padded;
  const bool as_they_lie =
      block.kv_type == DataType::kBF16 && block.head_dim == hd && block.vectors < kCopiedFrom;
  for (int i = rows.begin() / kChunk * kChunk; i < rows.end(); i += kLane) {
    KeyTile& tile = keys[i / kLane];
    if (as_they_lie && rows.InOnePiece(i)) {
      tile = {rows.At(i), static_cast<std::ptrdiff_t>(block.kv_row_bytes), 64};
      continue;
    }
    std::uint16_t* to = amx.keys + i * hd;
    tile = {reinterpret_cast<unsigned char*>(to), 64, kTileBytes};
    for (int p = 0; p < kLane; ++p) {
      const unsigned char* row = rows.At(i + p);
      for (int d = 0; d < hd; d += 32) {
        _mm512_store_si512(to + d * kLane + p * 32,
                           row != nullptr ? Load32(block.kv_type, row, d, block.head_dim)
                                          : _mm512_setzero_si512());
      }
    }
  }
  // A chunk's second half may lie behind the last position.
  if ((rows.end() + kLane - 1) / kLane % 2 == 1) {
    std::uint16_t* to = amx.keys + (rows.end() + kLane - 1) / kLane * kLane * hd;
    keys[(rows.end() + kLane - 1) / kLane] = {reinterpret_cast<unsigned char*>(to), 64, kTileBytes};
    for (int i = 0; i < kLane * hd; i += 32) _mm512_store_si512(to + i, _mm512_setzero_si512());
  }
}

/// V^T as first operands: for every chunk [hd / 16] tiles of [element][position].
inline void TransposeValues(const AttentionBlock& block, const SplitRows& rows,
                            const AttentionScratch& s) {
  const AmxScratch amx = CarveAmx(s);
  const int hd = s.hd_padded;
  // Word i of the low half of a pair of rows, then of the other: dwords are (first, second) row.
  alignas(64) std::uint16_t low[32], high[32];
  for (int i = 0; i < 16; ++i) {
    low[2 * i] = static_cast<std::uint16_t>(i), low[2 * i + 1] = static_cast<std::uint16_t>(32 + i);
    high[2 * i] = static_cast<std::uint16_t>(16 + i);
    high[2 * i + 1] = static_cast<std::uint16_t>(48 + i);
  }
  const __m512i pick_low = _mm512_load_si512(low), pick_high = _mm512_load_si512(high);
  for (int chunk = rows.begin() / kChunk; chunk * kChunk < rows.end(); ++chunk) {
    const unsigned char* at[kChunk];
    for (int p = 0; p < kChunk; ++p) at[p] = rows.At(chunk * kChunk + p);
    for (int d = 0; d < hd; d += 32) {
      __m512 first[16], second[16];
      for (int pair = 0; pair < kChunk / 2; ++pair) {
        const auto load = [&](int p) {
          return at[p] != nullptr ? Load32(block.kv_type, at[p], d, block.head_dim)
                                  : _mm512_setzero_si512();
        };
        const __m512i even = load(2 * pair), odd = load(2 * pair + 1);
        first[pair] = reinterpret_cast<__m512>(_mm512_permutex2var_epi16(even, pick_low, odd));
        second[pair] = reinterpret_cast<__m512>(_mm512_permutex2var_epi16(even, pick_high, odd));
      }
      TransposeInRegisters(first);
      TransposeInRegisters(second);
      std::uint16_t* tile = amx.values + (chunk * (hd / 16) + d / 16) * kTileWords;
      for (int i = 0; i < 16; ++i) {
        _mm512_store_si512(tile + 32 * i, reinterpret_cast<__m512i>(first[i]));
        _mm512_store_si512(tile + kTileWords + 32 * i, reinterpret_cast<__m512i>(second[i]));
      }
    }
  }
}

}  // namespace
}  // namespace tilewright
