#pragma once

#include "ops/gemm/cpu/int8/block_products.h"
#include "ops/gemm/cpu/int8/epilogue.h"
#include "ops/gemm/cpu/int8/layout.h"

/// The kernel, written once over a vector type `Vec` that each kernel file defines before including
/// this header. Everything lives in an unnamed namespace: each instruction set must keep its own
/// copy.
///
/// All instruction sets give the same bits. Within a block of 32 k the products are summed in
/// int32, exactly. The blocks are then accumulated in f32 in ascending order of k by one fixed
/// sequence of operations, whatever the number of rows, the panel or the thread: a result depends
/// on its row of A and its column of B alone.

namespace tilewright::gemm_int8 {
namespace {

/// Vectors of a panel that one pass over it multiplies. Tiles of few rows wait for memory: they take
/// the whole panel at once, or a second pass would find it in the cache and leave memory idle.
template <int R>
constexpr int kLanes = R <= Vec::kWholePanelRows ? kPanelColumns / Vec::kColumns : 1;

/// out[g][l][r] = row r of the tile times the columns of vector first_lane + l of the panel; with several groups, of
/// the g-th of G panels side by side.
template <class Block, int R, int G, int L, bool kAbreast>
inline __attribute__((always_inline)) void RunPanel(const TileArgs& args, const std::uint8_t* panel,
                                                    int first_lane, PanelCursor<kAbreast>& at,
                                                    F (&out)[G][L][R]) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr bool kIntegers = kFormat.scale == Factor::kF16TimesInt;
  constexpr int kColumns = Vec::kColumns;
  F acc[G][L][R];  // apart from `out`, whose other uses would keep it in memory
  TILEWRIGHT_UNROLL
  for (int g = 0; g < G; ++g) {
    TILEWRIGHT_UNROLL
    for (int l = 0; l < L; ++l) {
      TILEWRIGHT_UNROLL
      for (int r = 0; r < R; ++r) acc[g][l][r] = Vec::ZeroF();
    }
  }
  constexpr int kRecord = R * RecordBytes(kFormat);
  const std::uint8_t* x = args.a;
  at.codes = panel + first_lane * 4 * kColumns;
  at.scales = panel +
              static_cast<std::size_t>(CodeBytes(kFormat)) * static_cast<std::size_t>(args.blocks) +
              first_lane * kScaleStep<Block>;
  const std::size_t next = args.panel_bytes * (kAbreast ? Vec::kAbreast : 1);
  constexpr int kInside = kIntegers ? kFormat.elements / kBlock : 1;
  for (int outer = 0; outer < args.blocks; outer += kInside) {
    F d[G][L], m[G][L];
    TILEWRIGHT_UNROLL
    for (int g = 0; g < G; ++g) {
      TILEWRIGHT_UNROLL
      for (int l = 0; l < L; ++l) {
        d[g][l] = m[g][l] = Vec::ZeroF();
        if constexpr (kIntegers) {
          // f16 lanes are twice as wide as int8 ones.
          const std::uint8_t* halves = at.scales + g * args.panel_bytes +
                                       kInside * IntegerBytes(kFormat) + first_lane * kColumns +
                                       ToVector(at, l, 2 * kColumns);
          d[g][l] = Vec::LoadHalf(halves);
          if constexpr (kFormat.min != Factor::kNone)
            m[g][l] = Vec::LoadHalf(halves + 2 * kPanelColumns);
        }
      }
    }
    for (int block = 0; block < kInside; ++block) {
      TILEWRIGHT_UNROLL
      for (int g = 0; g < G; ++g) MultiplyBlock<Block>(at.Beside(g), d[g], m[g], x, acc[g]);
      x += kRecord;
      at.codes += CodeBytes(kFormat);
      at.scales += kIntegers ? IntegerBytes(kFormat) : HalfBytes(kFormat);
      if constexpr (!kAbreast) Step<Block>(at.near, args.blocks, next);
      Step<Block>(at.far, args.blocks, next);
    }
    if constexpr (kIntegers) at.scales += HalfBytes(kFormat);
  }
  TILEWRIGHT_UNROLL
  for (int g = 0; g < G; ++g) {
    TILEWRIGHT_UNROLL
    for (int l = 0; l < L; ++l) {
      TILEWRIGHT_UNROLL
      for (int r = 0; r < R; ++r) out[g][l][r] = acc[g][l][r];
    }
  }
}

/// D = alpha * value (+ beta * C) for one vector; columns >= args.columns are neither read nor
/// written.
inline void Store(const TileArgs& args, int row, int column, F value) {
  const int left = args.columns - column;
  if (left <= 0) return;
  const int count = left < Vec::kColumns ? left : Vec::kColumns;
  if (args.beta != 0.0f) {
    const F c = Vec::LoadPart(args.c + row * args.ldc + column, count);
    value = Vec::Fma(c, Vec::Set(args.beta), value);
  }
  Vec::StorePart(args.d + row * args.ldd + column, value, count);
}

/// Stores alpha times `sum`, gated times silu of alpha times `gate`, which is unused else.
inline void StoreOutput(const TileArgs& args, int row, int column, const F& gate, const F& sum) {
  const F alpha = Vec::Set(args.alpha);
  F value = Vec::Mul(sum, alpha);
  if (args.gated) value = Vec::Mul(Silu(Vec::Mul(gate, alpha)), value);
  Store(args, row, column, value);
}

/// One row by Vec::kAbreast panels side by side, from `panel` on. What all multiply at once is a vector of each where
/// that is a whole panel, else a panel after the other.
template <class Block>
inline void MultiplyAbreast(const TileArgs& args, int panel) {
  constexpr int kPanels = Vec::kAbreast;
  static_assert(kPanels == 1 || kPanels % 2 == 0, "gated pairs stay together");
  constexpr int kVectors = kPanelColumns / Vec::kColumns, kEach = kVectors > 1 ? kVectors : kPanels;
  const int step = args.gated ? 2 : 1;
  const std::uint8_t* b = args.b + static_cast<std::size_t>(panel) * args.panel_bytes;
  PanelCursor<true> at;
  at.panel_bytes = args.panel_bytes;
  at.far = StartAhead<Block>(b, args.blocks, kPanels * args.panel_bytes, kBlocksAbreast);
  F acc[kPanels * kVectors / kEach][kEach][1];
  RunPanel<Block, 1>(args, b, 0, at, acc);
  const auto sum = [&acc](int p, int v) -> const F& {
    const int i = p * kVectors + v;
    return acc[i / kEach][i % kEach][0];
  };
  for (int p = 0; p < kPanels; p += step) {
    for (int v = 0; v < kVectors; ++v)
      StoreOutput(args, 0, (panel + p) / step * kPanelColumns + v * Vec::kColumns, sum(p, v),
                  sum(p + step - 1, v));
  }
}

template <class Block, int R>
__attribute__((noinline)) void ComputeRows(const TileArgs& args) {
  const int step = args.gated ? 2 : 1;
  const auto ahead = [&args](int panel, int distance) {
    return StartAhead<Block>(args.b + static_cast<std::size_t>(panel) * args.panel_bytes,
                             args.blocks, args.panel_bytes, distance);
  };
  int panel = 0;
  if constexpr (R == 1 && kGainsAbreast<Block>) {
    for (; args.abreast && panel + Vec::kAbreast <= args.panels; panel += Vec::kAbreast)
      MultiplyAbreast<Block>(args, panel);
  }
  PanelCursor<false> at;
  at.near = ahead(panel, kBlocksNear), at.far = ahead(panel, kBlocksFar<Block>);
  at.panel_bytes = args.panel_bytes;
  for (; panel < args.panels; panel += step) {
    const std::uint8_t* b = args.b + static_cast<std::size_t>(panel) * args.panel_bytes;
    const int column = panel / step * kPanelColumns;
    const PanelCursor<false> start = at;  // each pass over a panel fetches the same
    for (int lane = 0; lane < kPanelColumns / Vec::kColumns; lane += kLanes<R>) {
      at = start;
      F acc[1][kLanes<R>][R];
      RunPanel<Block, R>(args, b, lane, at, acc);
      F gate[kLanes<R>][R];
      if (args.gated) {
        for (int l = 0; l < kLanes<R>; ++l) {
          for (int r = 0; r < R; ++r) gate[l][r] = acc[0][l][r];
        }
        RunPanel<Block, R>(args, b + args.panel_bytes, lane, at, acc);
      }
      for (int l = 0; l < kLanes<R>; ++l) {
        for (int r = 0; r < R; ++r)
          StoreOutput(args, r, column + (lane + l) * Vec::kColumns, gate[l][r], acc[0][l][r]);
      }
    }
  }
}

/// Two sums of 16 k live at once for blocks of two sub-blocks, so their full tiles are lower: with
/// 12 rows they spill, a third slower.
template <class Block>
constexpr int kTileRows = (Block::kFormat.sub_block < kBlock) && (Vec::kRows > 8) ? 8 : Vec::kRows;

template <class Block>
void Compute(const TileArgs& args) {
  static_assert(Vec::kRows <= kMaxTileRows);
#define TILEWRIGHT_ROWS(R)                                                   \
  case R:                                                                    \
    if constexpr (R <= kTileRows<Block>) return ComputeRows<Block, R>(args); \
    break;
  switch (args.rows) {
    TILEWRIGHT_ROWS(1)
    TILEWRIGHT_ROWS(2)
    TILEWRIGHT_ROWS(3)
    TILEWRIGHT_ROWS(4)
    TILEWRIGHT_ROWS(5)
    TILEWRIGHT_ROWS(6)
    TILEWRIGHT_ROWS(7)
    TILEWRIGHT_ROWS(8)
    TILEWRIGHT_ROWS(9)
    TILEWRIGHT_ROWS(10)
    TILEWRIGHT_ROWS(11)
    TILEWRIGHT_ROWS(12)
  }
#undef TILEWRIGHT_ROWS
}

template <class Block, class V = Vec>  // a parameter, so that `if constexpr` discards
void Quantise(const float* a, std::int64_t lda, int rows, int blocks, std::uint8_t* tile) {
  const int record = rows * RecordBytes(Block::kFormat);
  for (int r = 0; r < rows; ++r) {
    const float* source = a + r * lda;
    std::uint8_t* x = tile;
    int block = 0;
    float d[4];
    std::int32_t low[4], high[4];
    if constexpr (V::kFourBlocks) {
      for (; block + 4 <= blocks; block += 4, source += 4 * kBlock) {
        V::FourBlocks(source, x + 32 * r, record, d, low, high);
        for (int i = 0; i < 4; ++i, x += record)
          PutRecord<Block>(d[i], low[i], high[i], rows, r, x);
      }
    }
    for (; block < blocks; ++block, source += kBlock, x += record) {
      float inverse;
      ScaleOfI8x32(Vec::Magnitude(source), d[0], inverse);
      Vec::Round(source, inverse, x + 32 * r, low[0], high[0]);
      PutRecord<Block>(d[0], low[0], high[0], rows, r, x);
    }
  }
}

template <class Block>
constexpr void PutOps(IsaOps& ops) {
  if constexpr (HasInt8(Block::kFormat)) {
    constexpr int kIndex = IndexOf(Block::kFormat);
    ops.tile_rows[kIndex] = kTileRows<Block>;
    ops.abreast[kIndex] = kGainsAbreast<Block> ? Vec::kAbreast : 1;
    ops.quantise[kIndex] = &Quantise<Block>;
    ops.compute[kIndex] = &Compute<Block>;
  }
}
template <class... Blocks>
constexpr IsaOps MakeOps(BlockList<Blocks...>) {
  IsaOps ops = {};
  (PutOps<Blocks>(ops), ...);
  return ops;
}
constexpr IsaOps kOps = MakeOps(AllBlocks{});

}  // namespace
}  // namespace tilewright::gemm_int8
