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

/// Asks for the rows of a later split, which lie too far apart for the processor to foresee.
inline void PrefetchRows(const AttentionBlock& block, const unsigned char* base, int from) {
  const SplitRows rows(block, base, from, block.seen - from < kSplit ? block.seen - from : kSplit);
  const int bits = block.kv_type == DataType::kF32 ? 32 : block.kv_type == DataType::kQ8_0 ? 9 : 16;
  const int bytes = block.head_dim * bits / 8;
  for (int i = rows.begin(); i < rows.end(); ++i) {
    const unsigned char* row = rows.At(i);
    for (int at = 0; at < bytes; at += 64)
      _mm_prefetch(reinterpret_cast<const char*>(row + at), _MM_HINT_T1);
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

/// A row's weights are e^(score - shift). The shift follows the greatest score so far only when that is
/// ahead of it by more than this: a result is scaled anew a few times a row and not in every split,
/// and weights of up to e^8 lose no bits in bf16 and f32.
constexpr float kShiftSlack = 8;

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
inline bool IsOpen(const VectorGroup& g, int chunk) {
  return chunk * kChunk >= g.open_from && (chunk + 1) * kChunk <= g.open_to;
}

/// The greatest scores [kChunk][kGroup] of a chunk in every lane; soft-caps and masks them.
inline void Maxima(const AttentionBlock& block, const VectorGroup& g, int chunk, float* scores,
                   __m512 (&max)[2]) {
  const __m512 nothing = _mm512_set1_ps(-__builtin_inff());
  const bool open = IsOpen(g, chunk);
  const float inverse = block.softcap > 0 ? 1.0f / block.softcap : 0;
  for (int t = 0; t < 2; ++t) {
    max[t] = nothing;
    if (t >= g.tiles) continue;
    __m512 most[2] = {nothing, nothing};
    for (int p = 0; p < kChunk; ++p) {
      float* at = scores + p * kGroup + t * kLane;
      if (block.softcap > 0) StoreVec(at, SoftcapVec(LoadVec(at), block.softcap, inverse));
      __m512 x = _mm512_load_ps(at);
      if (!open) {
        x = _mm512_mask_mov_ps(nothing, Sees(g, t, chunk * kChunk + p), x);
        _mm512_store_ps(at, x);
      }
      most[p % 2] = _mm512_max_ps(most[p % 2], x);
    }
    max[t] = _mm512_max_ps(most[0], most[1]);
  }
}

/// The running softmax of a group: shifts, and sums of the weights of even and odd positions.
struct Running {
  __m512 shift[2], shift_log2[2], even[2], odd[2];
};

inline void SetShift(Running& run, int t, __m512 shift) {
  run.shift[t] = shift;
  // Of lanes that have seen nothing no weight counts, but none may be NaN.
  const __mmask16 none = _mm512_cmp_ps_mask(shift, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ);
  run.shift_log2[t] =
      _mm512_maskz_mul_ps(static_cast<__mmask16>(~none), shift, _mm512_set1_ps(kLog2E));
}

inline void Resume(const AttentionScratch& s, const VectorGroup& g, Running& run) {
  for (int t = 0; t < g.tiles; ++t) {
    SetShift(run, t, _mm512_loadu_ps(s.max + g.first + t * kLane));
    run.even[t] = _mm512_loadu_ps(s.sum + g.first + t * kLane);
    run.odd[t] = _mm512_setzero_ps();
  }
}
inline void Suspend(const VectorGroup& g, const Running& run, const AttentionScratch& s) {
  for (int t = 0; t < g.tiles; ++t) {
    _mm512_storeu_ps(s.max + g.first + t * kLane, run.shift[t]);
    _mm512_storeu_ps(s.sum + g.first + t * kLane, _mm512_add_ps(run.even[t], run.odd[t]));
  }
}

/// Lanes whose shift has to follow these maxima.
inline __mmask16 Overtaken(const Running& run, int t, __m512 max) {
  return _mm512_cmp_ps_mask(max, _mm512_add_ps(run.shift[t], _mm512_set1_ps(kShiftSlack)),
                            _CMP_GT_OQ);
}

/// Moves the shifts of lanes `raised` of tile `t` to `max` and scales what they have: out and sums.
/// Other lanes are multiplied by one.
inline void Raise(Running& run, int t, __mmask16 raised, __m512 max, int hd, float* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 keep = _mm512_mask_mov_ps(one, raised, Exp512(_mm512_sub_ps(run.shift[t], max)));
  run.even[t] = _mm512_mul_ps(run.even[t], keep);
  run.odd[t] = _mm512_mul_ps(run.odd[t], keep);
  for (int d = 0; d < hd; ++d)
    _mm512_storeu_ps(out + d * kLane, _mm512_mul_ps(_mm512_loadu_ps(out + d * kLane), keep));
  SetShift(run, t, _mm512_mask_mov_ps(run.shift[t], raised, max));
}

/// Weights of the pairs of positions [begin, end) of a chunk as second operands: a tile of [pair of
/// positions][vector][2] for every 16 vectors.
inline void WeighPairs(const VectorGroup& g, int chunk, int begin, int end, const float* scores,
                       Running& run, std::uint16_t* weights) {
  alignas(64) static constexpr std::uint16_t kInterleave[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i interleave = _mm512_load_si512(kInterleave);
  const bool open = IsOpen(g, chunk);
  for (int t = 0; t < g.tiles; ++t) {
    std::uint16_t* tile = weights + (chunk * 2 + t) * kTileWords;
    const float* at = scores + 2 * begin * kGroup + t * kLane;
    const __m512 shift = run.shift_log2[t];
    __m512 even_sum = run.even[t], odd_sum = run.odd[t];
    for (int pair = begin; pair < end; ++pair, at += 2 * kGroup) {
      __m512 even = WeightOf(_mm512_load_ps(at), shift);
      __m512 odd = WeightOf(_mm512_load_ps(at + kGroup), shift);
      if (!open) {
        even = _mm512_maskz_mov_ps(Sees(g, t, chunk * kChunk + 2 * pair), even);
        odd = _mm512_maskz_mov_ps(Sees(g, t, chunk * kChunk + 2 * pair + 1), odd);
      }
      even_sum = _mm512_add_ps(even_sum, even);
      odd_sum = _mm512_add_ps(odd_sum, odd);
      _mm512_store_si512(tile + 32 * pair,
                         _mm512_permutexvar_epi16(interleave, PairToBF16(odd, even)));
    }
    run.even[t] = even_sum, run.odd[t] = odd_sum;
  }
}

// --- Products ----------------------------------------------------------------------------------

/// What the vector units do between the steps of a product: the weights of a chunk, in parts. The
/// tile unit works on a step of four products for 64 cycles, and the processor looks ahead no
/// further than some hundred instructions: so both must alternate in the program, too.
class Beside {
 public:
  Beside(const VectorGroup& g, int chunk, const float* scores, Running& run, std::uint16_t* weights)
      : g_(g), chunk_(chunk), scores_(scores), run_(run), weights_(weights) {}
  /// Divides what is left by the steps that will come.
  void Expect(int steps) { each_ = (kPairs - done_ + steps - 1) / (steps > 0 ? steps : 1); }
  void Do() { DoUntil(done_ + each_ < kPairs ? done_ + each_ : kPairs); }
  void Finish() { DoUntil(kPairs); }

 private:
  static constexpr int kPairs = kChunk / 2;
  void DoUntil(int end) {
    if (end > done_) WeighPairs(g_, chunk_, done_, end, scores_, run_, weights_);
    done_ = end;
  }
  const VectorGroup& g_;
  int chunk_;
  const float* scores_;
  Running& run_;
  std::uint16_t* weights_;
  int done_ = 0, each_ = kPairs;
};
struct NothingBeside {
  void Do() {}
};

/// Scores of a chunk: S^T[32][16 or 32] = K . q^T.
template <class Tiles, class Other>
inline void ScoreChunk(Tiles& tiles, const VectorGroup& g, const KeyTile* keys, int chunk, int hd,
                       const std::uint16_t* queries, float* scores, Other& beside) {
  const KeyTile &first = keys[2 * chunk], &second = keys[2 * chunk + 1];
  const std::uint16_t* q0 = queries + g.first / kLane * (hd / 32) * kTileWords;
  const std::uint16_t* q1 = q0 + hd / 32 * kTileWords;
  constexpr std::ptrdiff_t kStride = kGroup * sizeof(float);
  tiles.template Zero<0>();
  tiles.template Zero<1>();
  tiles.template Zero<2>();
  tiles.template Zero<3>();
  for (int step = 0; step < hd / 32; ++step) {
    tiles.template Load<4>(first.at + step * first.step, first.stride);
    tiles.template Load<6>(q0 + step * kTileWords, 64);
    tiles.template DotBF16<0, 4, 6>();
    tiles.template Load<5>(second.at + step * second.step, second.stride);
    tiles.template DotBF16<2, 5, 6>();
    if (g.tiles == 2) {
      tiles.template Load<7>(q1 + step * kTileWords, 64);
      tiles.template DotBF16<1, 4, 7>();
      tiles.template DotBF16<3, 5, 7>();
    }
    beside.Do();
  }
  tiles.template Store<0>(scores, kStride);
  tiles.template Store<2>(scores + kLane * kGroup, kStride);
  if (g.tiles == 1) return;
  tiles.template Store<1>(scores + kLane, kStride);
  tiles.template Store<3>(scores + kLane * kGroup + kLane, kStride);
}

/// Adds the weighted values of chunks [begin, end) to 32 elements of out [tile of vectors][hd][16],
/// from element d on: V^T . P^T.
template <class Tiles, class Other>
inline void AddValues(Tiles& tiles, const VectorGroup& g, int begin, int end, int d, int hd,
                      const std::uint16_t* values, const std::uint16_t* weights, float* out,
                      Other& beside) {
  float* to = out + g.first * hd + d * kLane;
  tiles.template Load<0>(to, 64);
  tiles.template Load<2>(to + 16 * kLane, 64);
  if (g.tiles == 2) {
    tiles.template Load<1>(to + hd * kLane, 64);
    tiles.template Load<3>(to + (hd + 16) * kLane, 64);
  }
  for (int chunk = begin; chunk < end; ++chunk) {
    const std::uint16_t* v = values + (chunk * (hd / 16) + d / 16) * kTileWords;
    const std::uint16_t* p = weights + chunk * 2 * kTileWords;
    tiles.template Load<4>(v, 64);
    tiles.template Load<6>(p, 64);
    tiles.template DotBF16<0, 4, 6>();
    tiles.template Load<5>(v + kTileWords, 64);
    tiles.template DotBF16<2, 5, 6>();
    if (g.tiles == 2) {
      tiles.template Load<7>(p + kTileWords, 64);
      tiles.template DotBF16<1, 4, 7>();
      tiles.template DotBF16<3, 5, 7>();
    }
    beside.Do();
  }
  tiles.template Store<0>(to, 64);
  tiles.template Store<2>(to + 16 * kLane, 64);
  if (g.tiles == 1) return;
  tiles.template Store<1>(to + hd * kLane, 64);
  tiles.template Store<3>(to + (hd + 16) * kLane, 64);
}

/// Weighted values that are still to be added: of the group before, in parts of 32 elements.
struct Pending {
  VectorGroup g;
  int begin = 0, end = 0;  ///< chunks
  int d = 0;               ///< elements before are done
  const std::uint16_t* weights = nullptr;
};

template <class Tiles>
class SplitOnTiles {
 public:
  SplitOnTiles(const AttentionBlock& block, int from, int count, const AttentionScratch& s)
      : block_(block),
        s_(s),
        amx_(CarveAmx(s)),
        hd_(s.hd_padded),
        from_(from),
        rows_(block, block.keys, from, count) {
    pending_.d = hd_;
    FindKeys(block, rows_, s, keys_);
    TransposeValues(block, SplitRows(block, block.values, from, count), s);
    if (block.seen > from + kSplit) {
      PrefetchRows(block, block.keys, from + kSplit);
      PrefetchRows(block, block.values, from + kSplit);
    }
  }

  void Compute() {
    Tiles tiles{TileConfig()};
    int turn = 0;
    for (int first = 0; first < block_.vectors; first += kGroup, turn ^= 1)
      ComputeGroup(tiles, MakeGroup(block_, rows_, from_, first), amx_.weights + turn * kWeights);
    Drain(tiles);
  }

 private:
  static constexpr int kWeights = kSplit * kGroup;
  static constexpr int kScores = kChunk * kGroup;

  /// The scores of a chunk are computed between the exponentials of the one before, and so are the
  /// weighted values of the group before.
  void ComputeGroup(Tiles& tiles, const VectorGroup& g, std::uint16_t* weights) {
    if (g.begin == g.end) return;
    Running run;
    Resume(s_, g, run);
    NothingBeside nothing;
    int begin = g.begin;  // chunks before have been added already
    ScoreChunk(tiles, g, keys_, g.begin, hd_, amx_.queries, Scores(g.begin), nothing);
    for (int chunk = g.begin; chunk < g.end; ++chunk) {
      __m512 max[2];
      Maxima(block_, g, chunk, Scores(chunk), max);
      Follow(tiles, g, max, begin, chunk, weights, run);
      const int left = g.end - chunk, parts = (hd_ - pending_.d) / 32;
      const int wanted = (parts + left - 1) / left;  // of what is pending, in this round
      const bool more = chunk + 1 < g.end;
      Beside beside(g, chunk, Scores(chunk), run, weights);
      beside.Expect((more ? hd_ / 32 : 0) + wanted * (pending_.end - pending_.begin));
      if (more)
        ScoreChunk(tiles, g, keys_, chunk + 1, hd_, amx_.queries, Scores(chunk + 1), beside);
      for (int i = 0; i < wanted && pending_.d < hd_; ++i) AddPart(tiles, beside);
      beside.Finish();
    }
    Drain(tiles);
    Suspend(g, run, s_);
    pending_ = {g, begin, g.end, 0, weights};
  }

  /// Where scores have run away from the shift, what was weighed by it is added, then scaled. Adding
  /// it earlier or later changes no bit: sums stay in f32, and in their order.
  void Follow(Tiles& tiles, const VectorGroup& g, const __m512 (&max)[2], int& begin, int chunk,
              const std::uint16_t* weights, Running& run) {
    const __mmask16 raised[2] = {Overtaken(run, 0, max[0]),
                                 g.tiles == 2 ? Overtaken(run, 1, max[1]) : __mmask16{0}};
    if (raised[0] == 0 && raised[1] == 0) return;
    NothingBeside nothing;
    if (begin < chunk) {
      for (int d = 0; d < hd_; d += 32)
        AddValues(tiles, g, begin, chunk, d, hd_, amx_.values, weights, s_.out, nothing);
    }
    begin = chunk;
    for (int t = 0; t < g.tiles; ++t) {
      if (raised[t] != 0)
        Raise(run, t, raised[t], max[t], hd_, s_.out + (g.first + t * kLane) * hd_);
    }
  }

  template <class Other>
  void AddPart(Tiles& tiles, Other& beside) {
    AddValues(tiles, pending_.g, pending_.begin, pending_.end, pending_.d, hd_, amx_.values,
              pending_.weights, s_.out, beside);
    pending_.d += 32;
  }
  void Drain(Tiles& tiles) {
    NothingBeside nothing;
    if (pending_.weights == nullptr) return;
    while (pending_.d < hd_) AddPart(tiles, nothing);
  }
  float* Scores(int chunk) const { return amx_.scores + chunk % 2 * kScores; }

  const AttentionBlock& block_;
  const AttentionScratch& s_;
  const AmxScratch amx_;
  const int hd_, from_;
  const SplitRows rows_;
  KeyTile keys_[kSplit / kLane + 1];
  Pending pending_;
};

/// Adds one split of one block to max (the shifts), sum and out of the scratch.
template <class Tiles>
void AddSplitOnTiles(const AttentionBlock& block, int from, int count, const AttentionScratch& s) {
  SplitOnTiles<Tiles>(block, from, count, s).Compute();
}

/// The result as [vector][hd], in split_out.
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
  return {.compute_split = AddSplitOnTiles<Tiles>,
          .pack_queries = PackQueries,
          .rows_of_out = RowsOfTiles,
          .operand_bytes = AmxOperandBytes,
          .vector_tile = kLane,
          .hd_tile = 32,
          .most_vectors = 512,
          .tasks_per_worker = 2};
}

}  // namespace
}  // namespace tilewright
