#pragma once

// Blocked attention over a KV cache, written once for every vector width. Included by one kernel
// file for each instruction set, which defines the vector type `V` first; everything here is in an
// unnamed namespace, so each file keeps its own copy.
//
// A unit of work is a block of query rows of one sequence and one KV head. Keys come in splits of
// kSplit positions: scores of the whole split, its maximum, exponentials and sum, then the weighted
// sum of values. Splits are merged in ascending order by the online softmax of Milakov and
// Gimelshein (2018). The order of every addition depends only on the position, never on the block,
// the batch or the number of threads: results are bitwise equal run to run and batch-invariant.

#include <cstddef>
#include <cstdint>

#include "core/numeric.h"
#include "core/tanh_vec.h"
#include "ops/attention/cpu/layout.h"

namespace tilewright {
namespace {

/// Converts `count` elements of a cache row to f32; count is a multiple of 16 except for the scalar
/// file, which takes any.
inline void ConvertRow(DataType type, const void* row, int count, float* out) {
  switch (type) {
    case DataType::kF32: {
      const float* in = static_cast<const float*>(row);
      for (int i = 0; i < count; ++i) out[i] = in[i];
      return;
    }
    case DataType::kF16:
      V::ConvertF16(static_cast<const std::uint16_t*>(row), count, out);
      return;
    case DataType::kBF16: {
      const std::uint16_t* in = static_cast<const std::uint16_t*>(row);
      for (int i = 0; i < count; ++i) out[i] = BF16ToF32(in[i]);
      return;
    }
    default: {  // q8_0: blocks of f16 d and 32 int8
      const unsigned char* block = static_cast<const unsigned char*>(row);
      for (int i = 0; i < count; i += 32, block += 34) V::ConvertQ8(block, out + i);
      return;
    }
  }
}

/// c[R][NV * width] = (or +=) a[R][k] * b[k][NV * width].
template <int R, int NV, bool kAdd>
inline void MicroTile(const float* a, int lda, const float* b, int ldb, int k, float* c, int ldc) {
  V acc[R][NV];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < NV; ++v)
      acc[r][v] = kAdd ? V::Load(c + r * ldc + v * V::kWidth) : V::Zero();
  for (int i = 0; i < k; ++i) {
    V bv[NV];
    for (int v = 0; v < NV; ++v) bv[v] = V::Load(b + i * ldb + v * V::kWidth);
    for (int r = 0; r < R; ++r) {
      const V av = V::Set(a[r * lda + i]);
      for (int v = 0; v < NV; ++v) acc[r][v] = V::Fma(av, bv[v], acc[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < NV; ++v) acc[r][v].Store(c + r * ldc + v * V::kWidth);
}

template <int NV, bool kAdd>
inline void MicroColumns(const float* a, int lda, const float* b, int ldb, int rows, int k,
                         float* c, int ldc) {
  constexpr int kRows = V::kTileRows;
  int r = 0;
  for (; r + kRows <= rows; r += kRows)
    MicroTile<kRows, NV, kAdd>(a + r * lda, lda, b, ldb, k, c + r * ldc, ldc);
  if constexpr (kRows > 4) {
    if (r + 4 <= rows)
      MicroTile<4, NV, kAdd>(a + r * lda, lda, b, ldb, k, c + r * ldc, ldc), r += 4;
  }
  for (; r + 3 <= rows; r += 3)
    MicroTile<3, NV, kAdd>(a + r * lda, lda, b, ldb, k, c + r * ldc, ldc);
  for (; r < rows; ++r) MicroTile<1, NV, kAdd>(a + r * lda, lda, b, ldb, k, c + r * ldc, ldc);
}

/// Columns in groups of four vectors; n is a multiple of the width.
template <bool kAdd>
inline void SmallGemm(const float* a, int lda, const float* b, int ldb, int rows, int n, int k,
                      float* c, int ldc) {
  int j = 0;
  for (; j + 4 * V::kWidth <= n; j += 4 * V::kWidth)
    MicroColumns<4, kAdd>(a, lda, b + j, ldb, rows, k, c + j, ldc);
  for (; j < n; j += V::kWidth) MicroColumns<1, kAdd>(a, lda, b + j, ldb, rows, k, c + j, ldc);
}

/// Goes through the rows of a block's keys or values, from page to page.
/// (Converting keys page by page, as few_vectors_avx512.h sums values, took a tenth longer from memory on a Zen 5.)
class RowCursor {
 public:
  /// `end`: where the rows end that the block sees.
  RowCursor(const AttentionBlock& block, const unsigned char* base, int position, int end)
      : block_(block), base_(base), position_(position), end_(end) {
    if (position_ < end_) Find();
  }
  /// The next row; nullptr behind the last one.
  const unsigned char* Next() {
    if (position_ >= end_) return nullptr;
    const unsigned char* row = at_;
    ++position_, at_ += block_.kv_row_bytes;
    if (--in_page_ == 0 && position_ < end_) Find();
    return row;
  }

 private:
  void Find() {
    at_ = RowAt(block_, base_, position_);
    in_page_ = block_.pages != nullptr ? block_.page_size - position_ % block_.page_size : -1;
  }

  const AttentionBlock& block_;
  const unsigned char* base_;
  const unsigned char* at_ = nullptr;
  int position_, end_, in_page_ = -1;
};

/// Converts positions from .. from + count of the block's keys or values (`base`) to rows of f32, `row_ld` apart, and
/// asks for those a piece ahead, into the L2: rows of a head lie too far apart for the processor to foresee, and 64 of
/// them, a large power of two apart, share a few sets of the L1. (Asked for 256 positions at a time, in bursts,
/// decoding waited twice as long.)
inline void ConvertRows(const AttentionBlock& block, const unsigned char* base, int from, int count,
                        float* rows, int row_ld) {
  const std::size_t bytes = block.kv_bytes;
  RowCursor here(block, base, from, from + count), ahead(block, base, from + kPiece, block.seen);
  for (int i = 0; i < count; ++i) {
    if (const unsigned char* row = ahead.Next()) {
      for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, 0, 2);
    }
    ConvertRow(block.kv_type, here.Next(), block.head_dim, rows + i * row_ld);
  }
}

/// Positions are handled sixteen at a time: one vector of the widest instruction set.
inline int RoundUp16(int count) { return (count + 15) / 16 * 16; }

/// Positions of the split at `from` that no row of the block sees, at its start.
inline int Unseen(const AttentionBlock& block, int from) {
  return block.from > from ? block.from - from : 0;
}

/// As ConvertRows into rows32, with zeros for the first `unseen` positions, which are not read.
inline void LoadPiece(const AttentionBlock& block, const unsigned char* base, int from, int count,
                      int unseen, const AttentionScratch& s) {
  unseen = unseen > 0 ? unseen : 0;
  for (int i = 0; i < unseen * s.hd_padded; ++i) s.rows32[i] = 0.0f;
  ConvertRows(block, base, from + unseen, count - unseen, s.rows32 + unseen * s.hd_padded,
              s.hd_padded);
}

/// S[rows][kSplit] = q[rows][hd] . keys from..from+count; Softmax masks them. Whole pieces that no
/// row sees are left out: they would add zeros.
inline void Scores(const AttentionBlock& block, int from, int count, const AttentionScratch& s) {
  const int hd = block.head_dim, unseen = Unseen(block, from);
  for (int piece = unseen / kPiece * kPiece; piece < count; piece += kPiece) {
    const int in_piece = count - piece < kPiece ? count - piece : kPiece;
    const int padded = RoundUp16(in_piece);
    LoadPiece(block, block.keys, from + piece, in_piece, unseen - piece, s);
    for (int p = in_piece; p < padded; ++p) {
      for (int d = 0; d < hd; ++d) s.rows32[p * s.hd_padded + d] = 0.0f;
    }
    V::Transpose(s.rows32, s.hd_padded, hd, s.columns, kPiece, padded);
    SmallGemm<false>(s.q, s.hd_padded, s.columns, kPiece, block.vectors, padded, hd,
                     s.scores + piece, kSplit);
  }
}

/// Soft-caps the scores [from, end) of a row, both multiples of 16.
inline void CapScores(float* row, int from, int end, float softcap) {
  const float inverse = 1.0f / softcap;
  for (int p = from; p < end; p += kLanes)
    StoreVec(row + p, SoftcapVec(LoadVec(row + p), softcap, inverse));
}

/// Turns scores into weights; max and sum of each row to state. Positions that the row does not see
/// weigh exactly zero.
inline void Softmax(const AttentionBlock& block, int from, int count, const AttentionScratch& s) {
  const int padded = RoundUp16(count);
  for (int r = 0; r < block.vectors; ++r) {
    float* row = s.scores + r * kSplit;
    int valid =
        block.limit[r / block.group] - from;  // positions of this split that the row may see
    valid = valid > count ? count : valid;
    int first = block.first[r / block.group] - from;  // and where they begin
    first = first < 0 ? 0 : first;
    if (valid <= first) {
      for (int p = 0; p < padded; ++p) row[p] = 0.0f;
      s.split_max[r] = -__builtin_inff();
      s.split_sum[r] = 0.0f;
      continue;
    }
    if (block.softcap > 0) CapScores(row, first / 16 * 16, padded, block.softcap);
    for (int p = 0; p < first; ++p) row[p] = -__builtin_inff();
    for (int p = valid; p < padded; ++p) row[p] = -__builtin_inff();
    V vmax = V::Load(row);
    for (int p = V::kWidth; p < padded; p += V::kWidth) vmax = V::Max(vmax, V::Load(row + p));
    const float max = V::ReduceMax(vmax);
    const V shift = V::Set(max);
    V sum = V::Zero();
    for (int p = 0; p < padded; p += V::kWidth) {
      const V e = V::Exp(V::Sub(V::Load(row + p), shift));
      e.Store(row + p);
      sum = V::Add(sum, e);
    }
    s.split_max[r] = max;
    s.split_sum[r] = V::ReduceAdd(sum);
  }
}

/// split_out[rows][hd] = weights * values.
inline void WeightedValues(const AttentionBlock& block, int from, int count,
                           const AttentionScratch& s) {
  const int hd = block.head_dim, unseen = Unseen(block, from);
  const int first_piece = unseen / kPiece * kPiece;
  for (int piece = first_piece; piece < count; piece += kPiece) {
    const int in_piece = count - piece < kPiece ? count - piece : kPiece;
    LoadPiece(block, block.values, from + piece, in_piece, unseen - piece, s);
    for (int p = 0; p < in_piece; ++p) {
      for (int d = hd; d < s.hd_padded; ++d) s.rows32[p * s.hd_padded + d] = 0.0f;
    }
    if (piece == first_piece) {
      SmallGemm<false>(s.scores + piece, kSplit, s.rows32, s.hd_padded, block.vectors, s.hd_padded,
                       in_piece, s.split_out, s.hd_padded);
    } else {
      SmallGemm<true>(s.scores + piece, kSplit, s.rows32, s.hd_padded, block.vectors, s.hd_padded,
                      in_piece, s.split_out, s.hd_padded);
    }
  }
}

/// One split of one block: fills split_max, split_sum, split_out of the scratch.
void ComputeSplit(const AttentionBlock& block, int from, int count, const AttentionScratch& s) {
  Scores(block, from, count, s);
  Softmax(block, from, count, s);
  WeightedValues(block, from, count, s);
}

/// Folds a split into the running result of `vectors` rows. The first split finds max = -inf and
/// sum = 0.
void MergeSplit(int vectors, int hd_padded, const float* split_max, const float* split_sum,
                const float* split_out, float* max, float* sum, float* out) {
  for (int r = 0; r < vectors; ++r) {
    if (split_sum[r] == 0.0f) continue;  // the row sees nothing of this split
    const float merged = split_max[r] > max[r] ? split_max[r] : max[r];
    const float keep = sum[r] == 0.0f ? 0.0f : V::ExpScalar(max[r] - merged);
    const float take = V::ExpScalar(split_max[r] - merged);
    sum[r] = sum[r] * keep + split_sum[r] * take;
    max[r] = merged;
    const V vkeep = V::Set(keep), vtake = V::Set(take);
    float* o = out + r * hd_padded;
    const float* n = split_out + r * hd_padded;
    for (int d = 0; d < hd_padded; d += V::kWidth)
      V::Fma(V::Load(n + d), vtake, V::Mul(V::Load(o + d), vkeep)).Store(o + d);
  }
}

}  // namespace
}  // namespace tilewright
