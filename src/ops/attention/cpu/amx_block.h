#pragma once

// One split of one block of attention on tiles (device/cpu/tiles.h), bf16 operands and f32 sums; a
// template over the tiles, which the kernel file gives as instructions and a test as an emulation.
// Everything here is in an unnamed namespace, so that each file keeps its own copy.
//
// Scores are computed transposed, S^T = K . Q^T: rows of keys are the first operand as they lie in
// a cache of bf16, and what follows has a query vector in each lane: maxima, sums and factors need
// no sum across lanes, and masks are comparisons with a vector of limits. The weights become the
// second operand of O^T = V^T . P^T by one conversion and one permutation of two rows; V^T is made
// once for all vectors of a block. (P . V wants V as it lies but P transposed, which is as many
// shuffles for every 64 vectors.)
//
// A vector's bits depend on its own positions alone: products sum positions in their order, what it
// does not see weighs exactly zero, and maxima and sums are its lane's.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "core/numeric.h"
#include "core/tanh_vec.h"
#include "device/cpu/tiles.h"
#include "ops/attention/cpu/amx_scratch.h"
#include "ops/attention/cpu/exp_constants.h"
#include "ops/attention/cpu/layout.h"
#include "ops/attention/cpu/transpose_avx512.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see above

constexpr int kChunk = kAmxChunk;           // positions: what one product of weights sums over
constexpr int kChunks = kSplit / kChunk;    // of a split
constexpr int kLane = 16;                   // vectors of a tile
constexpr int kGroup = kAmxGroup;           // vectors that are computed together: two tiles
constexpr int kTileWords = kTileBytes / 2;  // bf16 of a tile
constexpr float kLowExponent = -126.0f;     // of two, the least of a normal number

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
    if (i < begin_ || i >= end_) return nullptr;
    const int position = from_ + i;
    if (block_.pages == nullptr)
      return base_ + static_cast<std::size_t>(position) * block_.kv_row_bytes;
    const int page = position / block_.page_size, row = position % block_.page_size;
    return base_ + static_cast<std::size_t>(block_.pages[page]) * block_.page_bytes +
           static_cast<std::size_t>(row) * block_.kv_row_bytes;
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

/// q^T of every 16 vectors as second operands: [hd / 32] tiles of [pair of hd][vector][2].
inline void PackQueries(const AttentionBlock& block, const AttentionScratch& s) {
  const AmxScratch amx = CarveAmx(s);
  const int hd = s.hd_padded;
  for (int v = 0; v < block.vectors; v += kLane) {
    for (int d = 0; d < hd; d += 32) {
      __m512 rows[16];
      for (int i = 0; i < kLane; ++i) {
        const float* q = s.q + (v + i) * hd + d;
        rows[i] =
            v + i < block.vectors
                ? reinterpret_cast<__m512>(PairToBF16(_mm512_loadu_ps(q + 16), _mm512_loadu_ps(q)))
                : _mm512_setzero_ps();
      }
      TransposeInRegisters(rows);
      std::uint16_t* tile = amx.queries + (v / kLane * (hd / 32) + d / 32) * kTileWords;
      for (int i = 0; i < 16; ++i)
        _mm512_store_si512(tile + 32 * i, reinterpret_cast<__m512i>(rows[i]));
    }
  }
}

/// 16 positions of keys, the first operand.
struct KeyTile {
  const void* at;
  std::ptrdiff_t stride;  ///< bytes
};

/// As they lie where a cache of bf16 has them in one piece, else converted; what nobody sees is zero.
inline void FindKeys(const AttentionBlock& block, const SplitRows& rows, const AttentionScratch& s,
                     KeyTile* keys) {
  const AmxScratch amx = CarveAmx(s);
  const int hd = s.hd_padded;
  const bool as_they_lie = block.kv_type == DataType::kBF16 && block.head_dim == hd;
  for (int i = rows.begin() / kLane * kLane; i < rows.end(); i += kLane) {
    KeyTile& tile = keys[i / kLane];
    if (as_they_lie && rows.InOnePiece(i)) {
      tile = {rows.At(i), static_cast<std::ptrdiff_t>(block.kv_row_bytes)};
      continue;
    }
    std::uint16_t* to = amx.keys + i * hd;
    tile = {to, 2 * hd};
    for (int p = 0; p < kLane; ++p) {
      const unsigned char* row = rows.At(i + p);
      for (int d = 0; d < hd; d += 32) {
        _mm512_store_si512(to + p * hd + d, row != nullptr
                                                ? Load32(block.kv_type, row, d, block.head_dim)
                                                : _mm512_setzero_si512());
      }
    }
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

// --- Softmax -----------------------------------------------------------------------------------

/// e^x for x <= 0 and more exactly than a weight of bf16 needs; zero below 2^-126; NaN stays NaN.
inline __m512 Exp512(__m512 x) {
  const __m512 low = _mm512_set1_ps(kExpLow);
  const __mmask16 below = _mm512_cmp_ps_mask(x, low, _CMP_LT_OQ);
  const __m512 v = _mm512_max_ps(low, x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(kLog2E)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), v);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpC6);
  for (const float c : {kExpC5, kExpC4, kExpC3, kExpC2, 1.0f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), below, _mm512_setzero_ps());
}

/// e^(x - max) for a weight that is rounded to bf16: x log2(e) - `max_log2`, to the power of two of
/// its integer part times a polynomial of the rest, off by 7.5e-5 at most (minimax for relative
/// error), a twenty-sixth of bf16's rounding. Not below 2^-126. NaN stays NaN.
inline __m512 WeightOf(__m512 x, __m512 max_log2) {
  __m512 y = _mm512_fmsub_ps(x, _mm512_set1_ps(kLog2E), max_log2);
  y = _mm512_max_ps(_mm512_set1_ps(kLowExponent), y);  // the second where one is NaN
  const __m512 magic = _mm512_set1_ps(0x1.8p23f);
  const __m512 n = _mm512_sub_ps(_mm512_add_ps(y, magic), magic);
  const __m512 r = _mm512_sub_ps(y, n);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.055171623719954745f), r,
                             _mm512_set1_ps(0.24261111871704227f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6932609938289459f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.999928073967366f));
  return _mm512_scalef_ps(p, n);
}

/// A group of up to 32 vectors within a split, one in a lane.
struct VectorGroup {
  int first = 0, tiles = 0;        ///< first vector; tiles of 16
  int begin = 0, end = 0;          ///< chunks that some vector sees
  int open_from = 0, open_to = 0;  ///< positions of the split that all of its vectors see
  __m512i limit[2], least[2];  ///< positions of the split that a vector sees: least .. limit - 1
};

inline VectorGroup MakeGroup(const AttentionBlock& block, const SplitRows& rows, int from,
                             int first) {
  VectorGroup g;
  g.first = first;
  g.tiles = block.vectors - first > kLane ? 2 : 1;
  alignas(64) std::int32_t limit[kGroup], least[kGroup];
  int lowest = kSplit, highest = 0;
  g.open_from = 0, g.open_to = kSplit;
  for (int i = 0; i < kGroup; ++i) {
    // Lanes behind the last vector do as it does; nobody looks at them.
    const int vector = first + i < block.vectors ? first + i : block.vectors - 1;
    const int row = vector / block.group;
    const int upper = block.limit[row] - from, lower = block.first[row] - from;
    limit[i] = upper < rows.end() ? upper : rows.end();
    least[i] = lower > 0 ? lower : 0;
    if (least[i] < limit[i]) {
      lowest = least[i] < lowest ? least[i] : lowest;
      highest = limit[i] > highest ? limit[i] : highest;
    }
    g.open_from = least[i] > g.open_from ? least[i] : g.open_from;
    g.open_to = limit[i] < g.open_to ? limit[i] : g.open_to;
  }
  g.begin = lowest / kChunk, g.end = (highest + kChunk - 1) / kChunk;
  if (g.end < g.begin) g.end = g.begin;
  for (int t = 0; t < 2; ++t) {
    g.limit[t] = _mm512_load_si512(limit + t * kLane);
    g.least[t] = _mm512_load_si512(least + t * kLane);
  }
  return g;
}

/// Lanes of tile `t` that see position `p` of the split.
inline __mmask16 Sees(const VectorGroup& g, int t, int p) {
  const __m512i position = _mm512_set1_epi32(p);
  return _mm512_cmplt_epi32_mask(position, g.limit[t]) &
         _mm512_cmpge_epi32_mask(position, g.least[t]);
}

/// scores: [kSplit][kGroup]. Soft-caps and masks them, a lane's maximum to max.
inline void Maxima(const AttentionBlock& block, const VectorGroup& g, float* scores,
                   __m512 (&max)[2]) {
  const __m512 nothing = _mm512_set1_ps(-__builtin_inff());
  max[0] = max[1] = nothing;
  const float inverse = block.softcap > 0 ? 1.0f / block.softcap : 0;
  for (int chunk = g.begin; chunk < g.end; ++chunk) {
    const int from = chunk * kChunk;
    const bool open = from >= g.open_from && from + kChunk <= g.open_to;
    for (int p = from; p < from + kChunk; ++p) {
      for (int t = 0; t < g.tiles; ++t) {
        float* at = scores + p * kGroup + t * kLane;
        if (block.softcap > 0) StoreVec(at, SoftcapVec(LoadVec(at), block.softcap, inverse));
        __m512 x = _mm512_load_ps(at);
        if (!open) {
          x = _mm512_mask_mov_ps(nothing, Sees(g, t, p), x);
          _mm512_store_ps(at, x);
        }
        max[t] = _mm512_max_ps(max[t], x);
      }
    }
  }
}

/// Of the group whose weights are being made: shifts and running sums of even and odd positions.
struct Weighing {
  __m512 max_log2[2], even[2], odd[2];
};

/// Weights of a chunk as second operands: `tiles` tiles of [pair of positions][vector][2].
inline void WeighChunk(const VectorGroup& g, int chunk, const float* scores, Weighing& w,
                       std::uint16_t* weights) {
  alignas(64) static constexpr std::uint16_t kInterleave[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i interleave = _mm512_load_si512(kInterleave);
  const int from = chunk * kChunk;
  const bool open = from >= g.open_from && from + kChunk <= g.open_to;
  for (int t = 0; t < g.tiles; ++t) {
    std::uint16_t* tile = weights + (chunk * 2 + t) * kTileWords;
    const float* at = scores + from * kGroup + t * kLane;
    for (int pair = 0; pair < kChunk / 2; ++pair, at += 2 * kGroup) {
      __m512 even = WeightOf(_mm512_load_ps(at), w.max_log2[t]);
      __m512 odd = WeightOf(_mm512_load_ps(at + kGroup), w.max_log2[t]);
      if (!open) {
        even = _mm512_maskz_mov_ps(Sees(g, t, from + 2 * pair), even);
        odd = _mm512_maskz_mov_ps(Sees(g, t, from + 2 * pair + 1), odd);
      }
      w.even[t] = _mm512_add_ps(w.even[t], even);
      w.odd[t] = _mm512_add_ps(w.odd[t], odd);
      _mm512_store_si512(tile + 32 * pair,
                         _mm512_permutexvar_epi16(interleave, PairToBF16(odd, even)));
    }
  }
}

// --- Products ----------------------------------------------------------------------------------

/// Scores of a chunk: S^T[32][16 or 32] = K . q^T.
template <class Tiles>
inline void ScoreChunk(Tiles& tiles, const VectorGroup& g, const KeyTile* keys, int chunk, int hd,
                       const std::uint16_t* queries, float* scores) {
  const KeyTile &first = keys[2 * chunk], &second = keys[2 * chunk + 1];
  const std::uint16_t* q0 = queries + g.first / kLane * (hd / 32) * kTileWords;
  const std::uint16_t* q1 = q0 + hd / 32 * kTileWords;
  const auto* k0 = static_cast<const unsigned char*>(first.at);
  const auto* k1 = static_cast<const unsigned char*>(second.at);
  float* to = scores + chunk * kChunk * kGroup;
  constexpr std::ptrdiff_t kStride = kGroup * sizeof(float);
  tiles.template Zero<0>();
  tiles.template Zero<1>();
  tiles.template Zero<2>();
  tiles.template Zero<3>();
  for (int step = 0; step < hd / 32; ++step) {
    tiles.template Load<4>(k0 + 64 * step, first.stride);
    tiles.template Load<6>(q0 + step * kTileWords, 64);
    tiles.template DotBF16<0, 4, 6>();
    tiles.template Load<5>(k1 + 64 * step, second.stride);
    tiles.template DotBF16<2, 5, 6>();
    if (g.tiles == 1) continue;
    tiles.template Load<7>(q1 + step * kTileWords, 64);
    tiles.template DotBF16<1, 4, 7>();
    tiles.template DotBF16<3, 5, 7>();
  }
  tiles.template Store<0>(to, kStride);
  tiles.template Store<2>(to + kLane * kGroup, kStride);
  if (g.tiles == 1) return;
  tiles.template Store<1>(to + kLane, kStride);
  tiles.template Store<3>(to + kLane * kGroup + kLane, kStride);
}

/// out [tile of vectors][hd][16] = V^T . P^T, of the chunks that the group sees.
template <class Tiles>
inline void WeightedSum(Tiles& tiles, const VectorGroup& g, int hd, const std::uint16_t* values,
                        const std::uint16_t* weights, float* out) {
  float* to = out + g.first * hd;
  for (int d = 0; d < hd; d += 32) {
    tiles.template Zero<0>();
    tiles.template Zero<1>();
    tiles.template Zero<2>();
    tiles.template Zero<3>();
    for (int chunk = g.begin; chunk < g.end; ++chunk) {
      const std::uint16_t* v = values + (chunk * (hd / 16) + d / 16) * kTileWords;
      const std::uint16_t* p = weights + chunk * 2 * kTileWords;
      tiles.template Load<4>(v, 64);
      tiles.template Load<6>(p, 64);
      tiles.template DotBF16<0, 4, 6>();
      tiles.template Load<5>(v + kTileWords, 64);
      tiles.template DotBF16<2, 5, 6>();
      if (g.tiles == 1) continue;
      tiles.template Load<7>(p + kTileWords, 64);
      tiles.template DotBF16<1, 4, 7>();
      tiles.template DotBF16<3, 5, 7>();
    }
    tiles.template Store<0>(to + d * kLane, 64);
    tiles.template Store<2>(to + (d + 16) * kLane, 64);
    if (g.tiles == 1) continue;
    tiles.template Store<1>(to + (hd + d) * kLane, 64);
    tiles.template Store<3>(to + (hd + d + 16) * kLane, 64);
  }
}

/// One split of one block: fills split_max, split_sum, split_out of the scratch. The scores of a
/// group are computed chunk by chunk between the exponentials of the group before, so that the tile
/// unit and the vector units both have work.
template <class Tiles>
void ComputeSplitOnTiles(const AttentionBlock& block, int from, int count,
                         const AttentionScratch& s) {
  const AmxScratch amx = CarveAmx(s);
  const int hd = s.hd_padded;
  KeyTile keys[kSplit / kLane];
  const SplitRows key_rows(block, block.keys, from, count);
  // A chunk's second half may lie behind the last position: it is zeros like the rest of its half.
  for (int d = 0; d < hd; d += 32) _mm512_store_si512(amx.zeros + d, _mm512_setzero_si512());
  for (KeyTile& tile : keys) tile = {amx.zeros, 0};
  FindKeys(block, key_rows, s, keys);
  TransposeValues(block, SplitRows(block, block.values, from, count), s);

  Tiles tiles{TileConfig()};
  VectorGroup before;
  Weighing w;
  for (int first = 0, turn = 0; first < block.vectors + kGroup; first += kGroup, turn ^= 1) {
    const bool scoring = first<block.vectors, weighing = first> 0;
    VectorGroup g;
    if (scoring) g = MakeGroup(block, key_rows, from, first);
    float* scores = amx.scores + turn * kSplit * kGroup;
    const float* scored = amx.scores + (turn ^ 1) * kSplit * kGroup;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (scoring && chunk >= g.begin && chunk < g.end)
        ScoreChunk(tiles, g, keys, chunk, hd, amx.queries, scores);
      if (weighing && chunk >= before.begin && chunk < before.end)
        WeighChunk(before, chunk, scored, w, amx.weights);
    }
    if (weighing) {
      WeightedSum(tiles, before, hd, amx.values, amx.weights, s.split_out);
      for (int t = 0; t < before.tiles; ++t)
        _mm512_storeu_ps(s.split_sum + before.first + t * kLane,
                         _mm512_add_ps(w.even[t], w.odd[t]));
    }
    if (!scoring) break;
    __m512 max[2];
    Maxima(block, g, scores, max);
    for (int t = 0; t < 2; ++t) {
      // Of lanes that see nothing no weight is looked at, but none may be NaN.
      const __mmask16 none =
          _mm512_cmp_ps_mask(max[t], _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ);
      w.max_log2[t] =
          _mm512_maskz_mul_ps(static_cast<__mmask16>(~none), max[t], _mm512_set1_ps(kLog2E));
      w.even[t] = w.odd[t] = _mm512_setzero_ps();
      if (t < g.tiles) _mm512_storeu_ps(s.split_max + first + t * kLane, max[t]);
    }
    before = g;
  }
}

/// Folds a split into the running result, 16 vectors at a time, as [tile of vectors][hd][16] both.
inline void MergeSplitOnTiles(int vectors, int hd, const float* split_max, const float* split_sum,
                              const float* split_out, float* max, float* sum, float* out) {
  const __m512 zero = _mm512_setzero_ps();
  for (int v = 0; v < vectors; v += kLane) {
    const __m512 part_sum = _mm512_loadu_ps(split_sum + v), old_sum = _mm512_loadu_ps(sum + v);
    const __m512 part_max = _mm512_loadu_ps(split_max + v), old_max = _mm512_loadu_ps(max + v);
    // Others see nothing of this split. NaN is something.
    const __mmask16 some = _mm512_cmp_ps_mask(part_sum, zero, _CMP_NEQ_UQ);
    const __mmask16 had = _mm512_cmp_ps_mask(old_sum, zero, _CMP_NEQ_UQ);
    const __m512 merged =
        _mm512_mask_mov_ps(old_max, _mm512_cmp_ps_mask(part_max, old_max, _CMP_GT_OQ), part_max);
    const __m512 keep = _mm512_maskz_mov_ps(had, Exp512(_mm512_sub_ps(old_max, merged)));
    const __m512 take = Exp512(_mm512_sub_ps(part_max, merged));
    _mm512_mask_storeu_ps(sum + v, some,
                          _mm512_fmadd_ps(part_sum, take, _mm512_mul_ps(old_sum, keep)));
    _mm512_mask_storeu_ps(max + v, some, merged);
    const float* part = split_out + v * hd;
    float* to = out + v * hd;
    for (int i = 0; i < hd * kLane; i += kLane) {
      const __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(to + i), keep);
      _mm512_mask_storeu_ps(to + i, some, _mm512_fmadd_ps(_mm512_loadu_ps(part + i), take, kept));
    }
  }
}

/// The result as [vector][hd], in the place of the last split's.
inline const float* RowsOfTiles(int vectors, const AttentionScratch& s) {
  const int hd = s.hd_padded;
  for (int v = 0; v < vectors; v += kLane) {
    for (int d = 0; d < hd; d += 16) {
      __m512 rows[16];
      for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_ps(s.out + v * hd + (d + i) * kLane);
      TransposeInRegisters(rows);
      for (int i = 0; i < 16; ++i) _mm512_storeu_ps(s.split_out + (v + i) * hd + d, rows[i]);
    }
  }
  return s.split_out;
}

template <class Tiles>
AttentionFunctions FunctionsOnTiles() {
  return {.compute_split = ComputeSplitOnTiles<Tiles>,
          .merge_split = MergeSplitOnTiles,
          .pack_queries = PackQueries,
          .rows_of_out = RowsOfTiles,
          .operand_bytes = AmxOperandBytes,
          .vector_tile = kLane,
          .hd_tile = 32,
          .most_vectors = 256,
          .tasks_per_worker = 2};
}

}  // namespace
}  // namespace tilewright
