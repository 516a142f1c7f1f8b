#pragma once

#include "decode/token_program.h"
#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/tagged.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/attention/cuda/attention_decode_kernel.cuh"
#include "ops/gemm/cuda/gemv/int8_product.cuh"

// All layers of a token in one launch: one CTA a multiprocessor, all of them resident, walks through the same list of steps.
// A product's rows are dealt to the CTAs and, in pairs, to their warps; attention's positions to some
// of the CTAs. What a step leaves goes to the next one as tagged words (tagged.cuh): a CTA
// starts a step when the words it needs have come, and there is no barrier among CTAs at all.
//
// Every warp reads its rows as one stream through a ring of its own, from the first product to
// the last: while a CTA waits for words, the rings fill with the weights of the steps ahead. One more warp does
// nothing but start the copies, a lane for each ring.
//
// A buffer is written again a layer later. By then all have read it: what is written stands on words
// of every CTA (each has rows of every product) that it left after it had read.
//
// Numbers are those of gemv_int8 (int8_product.cuh) and of attention_decode with as many warps and
// parts, to the bit.

namespace tw {

/// Spec: kBody, kOther (formats of weights), kHeadDim, kWarps, kStages, kAttentionWarps, kParts,
/// kAttentionStages; Cta() and Ctas(): which one of how many.
template <class Spec>
struct Token {
  static constexpr int kWarps = Spec::kWarps, kThreads = 32 * kWarps, kStages = Spec::kStages;
  static_assert((kWarps & (kWarps - 1)) == 0, "warps take turns by a mask");

  template <Type kType>
  struct Weights {
    using F = Int8Codes<kType>;
    static constexpr int kRowBytes = TokenRowBytes(F::kBytes, F::kBlock);
    static constexpr int kStageRows = TokenStageRows(kRowBytes);
    static constexpr int kParts = kTokenRows / kStageRows;  // of a unit, each with a stage
    static constexpr bool kAligned = F::kBytes % 16 == 0;   // rows begin at multiples of 16
    static constexpr int kSegmentBytes = kTokenSegment / F::kBlock * F::kBytes;
    using Product = Int8Product<kType, 1, kStageRows, kWarps, kTokenSegment, kRowBytes>;
    static_assert(kTokenSegment % Product::kTurnValues == 0, "whole turns");
  };
  using Body = Weights<Spec::kBody>;
  using Other = Weights<Spec::kOther>;
  template <class W>
  static constexpr int StageBytesOf() {
    return W::kStageRows * W::kRowBytes;
  }
  static constexpr int kStageBytes = StageBytesOf<Body>() > StageBytesOf<Other>()
                                         ? StageBytesOf<Body>()
                                         : StageBytesOf<Other>();

  struct AttentionSpec {
    static constexpr Type kType = Type::kBF16;
    static constexpr int kHeadDim = Spec::kHeadDim;
    static constexpr int kWarps = Spec::kAttentionWarps;
    static constexpr int kStages = Spec::kAttentionStages;
    static constexpr int kCluster = 1;
    static constexpr bool kForesees = false;
    static constexpr bool kTurns = true;
    static constexpr u32 kBarrier = 1;
    static constexpr bool kWhole = true;
  };
  using Attention = AttentionDecode<AttentionSpec>;
  using NewRowOf = typename Attention::Row;
  static constexpr int kParts = Spec::kParts;
  static constexpr int kUnitsEach = Attention::kUnits / kParts;  // of a head, that a part merges
  static_assert(Attention::kUnits % kParts == 0 && Spec::kAttentionWarps <= kWarps, "attention");
  static constexpr int kWordsOfUnit = 6;  // four sums, their maximum and the sum of the weights

  const TokenParams& p;
  u8* smem;  // [kWarps] rings: [kStages][kStageBytes]; then what TokenParams says
  int lane, warp;

  TW_DEVICE Token(const TokenParams& params, u8* shared)
      : p(params),
        smem(shared),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32) {}

  // What would stand in registers all the time is looked up when it is needed: attention takes
  // nearly all of them.
  TW_DEVICE static int Cta() { return Spec::Cta(); }
  TW_DEVICE static int Ctas() { return Spec::Ctas(); }
  /// x, or what attention needs.
  TW_DEVICE u8* Work() const { return smem + p.work_at; }
  TW_DEVICE u8* Ring() const { return smem + warp * (kStages * kStageBytes); }
  /// Mbarriers of a stage of a warp: it is filled; it is read.
  TW_DEVICE u32 Landed(int of_warp, int stage) const {
    return SmemAddress(smem) + static_cast<u32>(p.landed_at + 16 * (kStages * of_warp + stage));
  }
  TW_DEVICE u32 Freed(int of_warp, int stage) const { return Landed(of_warp, stage) + 8; }
  /// All warps but the one that loads.
  static TW_DEVICE void Sync() { NamedBarrier(2, kThreads); }
  TW_DEVICE const TokenStep& Step(int i) const {
    return reinterpret_cast<const TokenStep*>(smem + p.steps_at)[i];
  }
  struct Head {
    u32 turn;            // that the token begins with
    u32 failed;          // the token is lost
    int position, slot;  // of the row
  };
  TW_DEVICE volatile Head& Its() const {
    return *reinterpret_cast<volatile Head*>(smem + p.landed_at + 16 * kWarps * kStages);
  }

  // ---- Waiting

  struct Wait {
    u32 looks = 0;
    u64 since = 0;
  };
  /// Between two looks at words that have not come: whether to go on without them.
  TW_DEVICE bool GivesUp(Wait& wait) const {
    constexpr u32 kLooks = 64;  // between looks at the clock
    PauseInWait();
    if (Its().failed != 0) return true;
    if (++wait.looks % kLooks != 0) return false;
    const u64 now = NanosecondsNow();
    if (wait.since == 0) wait.since = now;
    if (now - wait.since <= p.wait_ns) return false;
    Its().failed = 1;
    StoreWord(p.state + kTokenError, 1);
    StoreWord(p.alarm, 1);
    return true;
  }
  /// Until there() is true in all lanes, which all call it: whether the lane's words have come. look() loads
  /// again those that have not. One lane looks at a time: all of a grid would keep from the L2
  /// what they wait for.
  template <class There, class Look>
  TW_DEVICE void WaitFor(There there, Look look) const {
    Wait wait;
    bool missing = !there();
    int leader = FirstLane(missing);
    TW_NO_UNROLL
    while (leader >= 0) {
      if (FirstLane(GivesUp(wait)) >= 0) return;
      if (missing && lane == leader) look();
      missing = missing && !there();
      const int next = FirstLane(missing);
      if (next == leader) continue;
      // The words of one have come, and so may have those of the others.
      if (missing) look();
      missing = missing && !there();
      leader = FirstLane(missing);
    }
  }

  // ---- The stream of weights

  /// Where the copies of a ring are: a part of a segment of the rows of a unit.
  struct Walk {
    const u8* first;                           // row of the unit
    u32 second;                                // bytes from it to the second one
    u32 row_bytes, segment_bytes, line_bytes;  // of a row, of a segment of it, and in a stage
    int parts;                                 // of a unit
    int step, unit, end, segment, segments, part;
    u32 rotation;  // units of this CTA in the steps before
  };
  /// The stage that is read next.
  struct Stage {
    int at;
    u32 parity;
  };

  /// Bytes of 16 in front of an address, and bytes of whole 16.
  TW_DEVICE static u32 SkipOf(const u8* address) {
    return static_cast<u32>(reinterpret_cast<u64>(address)) % 16;
  }
  TW_DEVICE static u32 WholeOf(u32 bytes) { return (bytes + 15) / 16 * 16; }

  struct Range {
    int begin, end;
  };
  /// Units of this CTA.
  TW_DEVICE Range UnitsOf(const TokenStep& s) const {
    const int units = TokenUnits(s.n);
    return {TokenBorder(units, Cta(), Ctas()), TokenBorder(units, Cta() + 1, Ctas())};
  }
  /// The first one of a warp: warps take units in turn, from step to step.
  TW_DEVICE static int FirstUnit(const Range& units, int of_warp, u32 rotation) {
    return units.begin + static_cast<int>((static_cast<u32>(of_warp) - rotation) & (kWarps - 1));
  }
  TW_DEVICE static u32 RowBytesOf(const TokenStep& s) {
    const u32 k = static_cast<u32>(s.k);
    return (s.flags & kTokenOther) != 0 ? k / Other::F::kBlock * Other::F::kBytes
                                        : k / Body::F::kBlock * Body::F::kBytes;
  }
  TW_DEVICE static const u8* RowsOf(const TokenStep& s, int unit, u32 row_bytes) {
    constexpr int kBlock = tilewright::cuda::kGemvGatedBlock;
    const int row = (s.flags & kTokenGates) != 0 ? unit / kBlock * (2 * kBlock) + unit % kBlock
                                                 : unit * kTokenRows;
    return reinterpret_cast<const u8*>(s.a) + static_cast<u64>(row) * row_bytes;
  }
  TW_DEVICE static u32 SecondOf(const TokenStep& s, u32 row_bytes) {
    return (s.flags & kTokenGates) != 0 ? tilewright::cuda::kGemvGatedBlock * row_bytes : row_bytes;
  }

  /// To the first unit of a warp in the step at which the walk is, or in a later one.
  TW_DEVICE void Open(Walk& walk, int of_warp) const {
    TW_NO_UNROLL
    for (; walk.step < p.step_count; ++walk.step) {
      const TokenStep& s = Step(walk.step);
      if ((s.flags & kTokenAttends) != 0) continue;
      const Range units = UnitsOf(s);
      walk.unit = FirstUnit(units, of_warp, walk.rotation);
      walk.end = units.end;
      walk.rotation += static_cast<u32>(units.end - units.begin);
      if (walk.unit >= units.end) continue;
      const bool other = (s.flags & kTokenOther) != 0;
      walk.segments = (s.k + kTokenSegment - 1) / kTokenSegment;
      walk.row_bytes = RowBytesOf(s);
      walk.segment_bytes = other ? Other::kSegmentBytes : Body::kSegmentBytes;
      walk.line_bytes = other ? Other::kRowBytes : Body::kRowBytes;
      walk.parts = other ? Other::kParts : Body::kParts;
      walk.first = RowsOf(s, walk.unit, walk.row_bytes);
      walk.second = SecondOf(s, walk.row_bytes);
      return;
    }
  }

  /// Starts the copy of what comes next for a warp to stage `stage` of its ring, and moves on.
  TW_DEVICE void Copy(Walk& walk, int of_warp, int stage) const {
    const u32 before = static_cast<u32>(walk.segment) * walk.segment_bytes;
    const u32 left = walk.row_bytes - before;
    const u32 bytes = left < walk.segment_bytes ? left : walk.segment_bytes;
    const u32 barrier = Landed(of_warp, stage);
    const u32 to = SmemAddress(smem) + static_cast<u32>((of_warp * kStages + stage) * kStageBytes);
    const u64 policy = ReadOncePolicy();
    const u8* from = walk.first + before;
    if (walk.parts == 1) {
      const u8* second = from + walk.second;
      const u32 skip = SkipOf(from), second_skip = SkipOf(second);
      const u32 whole = WholeOf(skip + bytes), second_whole = WholeOf(second_skip + bytes);
      MbarrierArriveExpectTx(barrier, whole + second_whole);
      BulkCopyOnce(to, from - skip, whole, barrier, policy);
      BulkCopyOnce(to + walk.line_bytes, second - second_skip, second_whole, barrier, policy);
    } else {
      if (walk.part > 0) from += walk.second;
      const u32 skip = SkipOf(from), whole = WholeOf(skip + bytes);
      MbarrierArriveExpectTx(barrier, whole);
      BulkCopyOnce(to, from - skip, whole, barrier, policy);
      walk.part ^= 1;
      if (walk.part != 0) return;
    }
    if (++walk.segment < walk.segments) return;
    walk.segment = 0;
    walk.unit += kWarps;
    if (walk.unit < walk.end) {
      walk.first = RowsOf(Step(walk.step), walk.unit, walk.row_bytes);
      return;
    }
    ++walk.step;
    Open(walk, of_warp);
  }
  /// What the last warp does, a lane for the ring of each other one: fills stages that are free, until all
  /// of the token's weights are on their way.
  TW_DEVICE void Load() const {
    Walk walk{};
    walk.step = lane < kWarps ? 0 : p.step_count;
    if (lane < kWarps) Open(walk, lane);
    Stage stage{0, 1};  // a stage is free before it was filled
    TW_NO_UNROLL
    while (FirstLane(walk.step < p.step_count) >= 0) {
      if (walk.step >= p.step_count || !MbarrierIsOver(Freed(lane, stage.at), stage.parity))
        continue;
      Copy(walk, lane, stage.at);
      Advance(stage);
    }
  }
  TW_DEVICE static void Advance(Stage& stage) {
    const bool last = stage.at + 1 == kStages;
    stage.at = last ? 0 : stage.at + 1;
    stage.parity ^= last ? 1u : 0u;
  }

  // ---- Products

  TW_DEVICE u32* WordsOf(int buffer) const { return p.words + p.offsets[buffer]; }

  /// Eight values of x under way: words, or for the first product the token's row in bf16.
  struct Pack {
    U32x4 w[2];
  };
  TW_DEVICE Pack StartPack(const u32* words, int pack) const {
    Pack under_way;
    if (words == nullptr) {
      under_way.w[0] = *(static_cast<const U32x4*>(p.embedded) + pack);
      under_way.w[1] = under_way.w[0];
    } else {
      TW_UNROLL
      for (int i = 0; i < 2; ++i) under_way.w[i] = LoadFourWords(words + (8 * pack + 4 * i));
    }
    return under_way;
  }
  TW_DEVICE void FinishPack(const u32* words, int pack, bool inside, u32 tag,
                            Pack& under_way) const {
    if (words == nullptr) return;
    WaitFor(
        [&] {
          return !inside ||
                 (HaveSmallTag(under_way.w[0], tag) && HaveSmallTag(under_way.w[1], tag));
        },
        [&] { under_way = StartPack(words, pack); });
  }
  TW_DEVICE static void ValuesOf(bool plain, const Pack& from, float (&v)[8]) {
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 word = from.w[0].v[i / 2];
      v[i] = plain ? (i % 2 == 0 ? LowBF16ToF32(word) : HighBF16ToF32(word))
                   : OfSmallWord(from.w[i / 4].v[i % 4]);
    }
  }

  template <class W>
  TW_DEVICE typename W::Product ProductOf(const TokenStep& s) const {
    const int segments = (s.k + kTokenSegment - 1) / kTokenSegment;
    return {Work(), lane, s.k, 1, s.k / W::F::kChunk, segments * kTokenSegment, TokenXBytes(s.k)};
  }

  /// x of a product, normalised where that is asked for, as bytes in shared memory. One loop goes twice
  /// over a row that is normalised, and there is no other: code that is run once a step is fetched each time.
  TW_DEVICE void RoundInput(const TokenStep& s) const {
    const auto product = ProductOf<Body>(s);  // sums of squares lie alike for both formats
    const int packs = s.k / 8, thread = static_cast<int>(threadIdx.x);
    const u32* words = (s.flags & kTokenPlainInput) != 0 ? nullptr : WordsOf(s.input);
    const u32 tag = Its().turn + s.tag_in;
    const bool norms = s.b != 0, other = (s.flags & kTokenOther) != 0;
    const void* norm = reinterpret_cast<const void*>(s.b);
    float weights[8] = {};
    if (norms) product.LoadWeights(norm, weights);
    Pack first{};
    if (thread < packs) first = StartPack(words, thread);
    FinishPack(words, thread, thread < packs, tag, first);
    Sync();  // all warps are done with what was there
    float scale = 1.0f;
    TW_NO_UNROLL
    for (int turn = norms ? 0 : 1; turn < 2; ++turn) {
      if (turn == 1 && norms) {
        Sync();  // all squares are there before any warp adds them up
        scale = NormScale(product.Squares(0), s.k, p.epsilon);
      }
      Pack now = first;
      TW_NO_UNROLL
      for (int from = 0; from < packs; from += kThreads) {
        const int pack = from + thread, ahead = pack + kThreads;
        const bool inside = pack < packs;
        Pack next{};
        if (ahead < packs) next = StartPack(words, ahead);
        if (from > 0) FinishPack(words, pack, inside, tag, now);
        float v[8];
        ValuesOf(words == nullptr, now, v);
        now = next;
        if (turn == 0) {
          const float sum = SquaresOfEight(v);
          if (inside && pack % 4 == 0) product.Squares(0)[pack / 4] = sum;
          continue;
        }
        if (norms) {
          if (inside && from > 0) LoadPack<Type::kF32, 8>(norm, 8 * pack, weights);
          TW_UNROLL
          for (int i = 0; i < 8; ++i) v[i] = v[i] * scale * weights[i];
        }
        const RoundedEight rounded = RoundEight(v);
        if (other) {
          ProductOf<Other>(s).PutPack(pack, inside, rounded, Work());
        } else {
          product.PutPack(pack, inside, rounded, Work());
        }
      }
    }
    Sync();  // all of x is there before any warp multiplies
  }

  TW_DEVICE float AddendOf(const TokenStep& s, int column) const {
    if ((s.flags & kTokenPlainAddend) != 0) return LoadElement<Type::kBF16>(p.embedded, column);
    // Words of a step before the last one: this CTA has found all of them.
    return OfSmallWord(LoadWordOnce(WordsOf(s.addend) + column));
  }

  /// Of the first lane of each row.
  TW_DEVICE void StoreUnit(const TokenStep& s, int column, float value, float addend) const {
    if ((s.flags & kTokenAdds) != 0) value = Fma(1.0f, addend, value);
    if ((s.flags & kTokenLogits) != 0) {
      p.logits[column] = value;
    } else {
      StoreWord(WordsOf(s.output) + column, SmallWord(value, Its().turn + s.tag_out));
    }
  }

  template <class W>
  TW_DEVICE void Multiply(const TokenStep& s, Stage& stage, u32 rotation) const {
    const auto product = ProductOf<W>(s);
    const int stages = (s.k + kTokenSegment - 1) / kTokenSegment * W::kParts;
    const Range units = UnitsOf(s);
    const u32 row_bytes = RowBytesOf(s), second = SecondOf(s, row_bytes);
    const bool gates = (s.flags & kTokenGates) != 0;
    const bool stores = lane % 16 == 0 && (!gates || lane == 0);
    TW_NO_UNROLL
    for (int unit = FirstUnit(units, warp, rotation); unit < units.end; unit += kWarps) {
      const int column = gates ? unit : kTokenRows * unit + lane / 16;
      float addend = 0.0f;  // asked for ahead of the products
      if ((s.flags & kTokenAdds) != 0 && stores) addend = AddendOf(s, column);
      const u8* first = RowsOf(s, unit, row_bytes);
      float sums[kTokenRows] = {};
      TW_NO_UNROLL
      for (int i = 0; i < stages; ++i) {
        const int segment = i / W::kParts;
        const bool upper = W::kParts > 1 && i % W::kParts != 0;
        int skips[W::kStageRows];
        float of_stage[W::kStageRows];
        TW_UNROLL
        for (int r = 0; r < W::kStageRows; ++r) {
          const u8* row =
              first + (r > 0 || upper ? second : 0) + static_cast<u32>(segment) * W::kSegmentBytes;
          skips[r] = W::kAligned ? 0 : static_cast<int>(SkipOf(row));
          of_stage[r] = upper ? sums[1] : sums[r];
        }
        MbarrierWait(Landed(warp, stage.at), stage.parity);
        product.Multiply(segment, Ring() + stage.at * kStageBytes, skips, of_stage);
        WarpBarrier();  // all lanes have read the stage
        if (lane == 0) MbarrierArrive(Freed(warp, stage.at));
        TW_UNROLL
        for (int r = 0; r < W::kStageRows; ++r) (upper ? sums[1] : sums[r]) = of_stage[r];
        Advance(stage);
      }
      float value = ReduceSums<kTokenRows, 16>(lane, sums);
      const float up = __shfl_xor_sync(kAllLanes, value, 16);
      if (gates) value = SiluOf(value) * up;
      if (stores) StoreUnit(s, column, value, addend);
    }
  }

  // ---- Attention

  /// What is behind the memory of Attention: the new row, then what the CTA merges.
  TW_DEVICE u8* NewRowAt() const {
    return Work() + Attention::kWarps * (Attention::kWarpBytes + 64) + 16;
  }
  TW_DEVICE u8* MergedAt() const {
    return NewRowAt() + tilewright::cuda::AttentionNewRowSmem(Spec::kHeadDim);
  }
  TW_DEVICE u64* PartialsOf(int x, int part, int heads) const {
    return p.partials +
           static_cast<i64>(x * kParts + part) * (heads * Attention::kUnits * kWordsOfUnit);
  }

  /// The row as the step in front left it.
  TW_DEVICE void LoadRow(NewRowOf& fresh, const Attention& of, u32 tag) const {
    constexpr int kEach = NewRowOf::kEach;
    const u32* from[kEach][2];
    u32 words[kEach][2];
    TW_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const auto source = fresh.SourceOf(i, 0, of.kv_head, of.first_head, of.heads);
      const u32* base = static_cast<const u32*>(source.base);
      from[i][0] = base != nullptr ? base + source.first : nullptr;
      from[i][1] = base != nullptr ? base + source.second : nullptr;
      TW_UNROLL
      for (int j = 0; j < 2; ++j) words[i][j] = base != nullptr ? LoadWordOnce(from[i][j]) : 0;
    }
    WaitFor(
        [&] {
          bool there = true;
          TW_UNROLL
          for (int i = 0; i < 2 * kEach; ++i) {
            there =
                there && (from[i / 2][i % 2] == nullptr || HasSmallTag(words[i / 2][i % 2], tag));
          }
          return there;
        },
        [&] {
          TW_UNROLL
          for (int i = 0; i < 2 * kEach; ++i) {
            if (from[i / 2][i % 2] != nullptr)
              words[i / 2][i % 2] = LoadWordOnce(from[i / 2][i % 2]);
          }
        });
    TW_UNROLL
    for (int i = 0; i < kEach; ++i) fresh.x[i] = words[i][0] >> 16 | (words[i][1] & 0xffff0000u);
  }

  /// One part of what the row sees, for one key and value head: its sums for all parts to merge.
  TW_DEVICE void AttendTo(const RopeAttentionParams& params, AttentionPlace place, u32 tag,
                          u32 partial_tag) const {
    Attention attention(params, Work(), place);
    if (!attention.Exists(Its().position, Its().slot)) return;
    const auto view = attention.ViewOf(Its().position, Its().slot);
    if (place.part >= view.share.parts) return;
    int page = *attention.PageEntry(view, view.share.first);
    const int new_page = *attention.PageEntry(view, view.share.seen.limit - 1);
    NewRowOf fresh(params, NewRowAt());
    fresh.LoadFrequency();
    fresh.SetAngle(view.position);
    // Earlier positions are on their way before the row is there.
    attention.template Rounds<true, false>(view, -Attention::kStages, 0, page, &fresh);
    LoadRow(fresh, attention, tag);
    attention.TurnRow(view, fresh, new_page);
    attention.template Rounds<false, true>(view, 0, view.share.rounds, page, &fresh);
    attention.KeepResult();
    Attention::Sync();  // every warp's result is there
    u64* to = PartialsOf(place.x, place.part, attention.most_heads);
    for (int u = static_cast<int>(threadIdx.x); u < attention.heads * Attention::kUnits;
         u += Attention::kThreads) {
      float total[4];
      const Normaliser all = attention.Combine(u / Attention::kUnits, u % Attention::kUnits, total);
      u64* words = to + u * kWordsOfUnit;
      StoreTwoWords(words, LargeWord(total[0], partial_tag), LargeWord(total[1], partial_tag));
      StoreTwoWords(words + 2, LargeWord(total[2], partial_tag), LargeWord(total[3], partial_tag));
      StoreTwoWords(words + 4, LargeWord(all.max, partial_tag), LargeWord(all.sum, partial_tag));
    }
    Attention::Sync();  // all are done with the memory
  }

  /// Some elements of every head from all parts.
  TW_DEVICE void Merge(const RopeAttentionParams& params, AttentionPlace place, u32* out, u32 tag,
                       u32 partial_tag) const {
    const Attention attention(params, Work(), place);
    const int thread = static_cast<int>(threadIdx.x);
    const int count = attention.heads * kUnitsEach;
    const bool exists = attention.Exists(Its().position, Its().slot);
    const int parts = exists ? attention.ViewOf(Its().position, Its().slot).share.parts : 0;
    const auto unit_of = [&](int u) { return place.part * kUnitsEach + u % kUnitsEach; };
    auto* const sums = reinterpret_cast<U32x4*>(MergedAt());  // [parts][count]
    auto* const norms = reinterpret_cast<Normaliser*>(MergedAt() + 16 * kParts * 8 * kUnitsEach);
    for (int from = 0; from < parts * count; from += Attention::kThreads) {
      const int at = from + thread;
      const bool inside = at < parts * count;
      const int part = inside ? at / count : 0, u = inside ? at % count : 0;
      const u64* words = PartialsOf(place.x, part, attention.most_heads) +
                         (u / kUnitsEach * Attention::kUnits + unit_of(u)) * kWordsOfUnit;
      U64x2 pairs[3] = {};
      const auto look = [&] {
        TW_UNROLL
        for (int i = 0; i < 3; ++i) pairs[i] = LoadTwoWords(words + 2 * i);
      };
      if (inside) look();
      WaitFor(
          [&] {
            bool there = true;
            TW_UNROLL
            for (int i = 0; i < 6; ++i)
              there = there && HasLargeTag(pairs[i / 2].v[i % 2], partial_tag);
            return there || !inside;
          },
          look);
      if (!inside) continue;
      sums[at] = {{static_cast<u32>(pairs[0].v[0]), static_cast<u32>(pairs[0].v[1]),
                   static_cast<u32>(pairs[1].v[0]), static_cast<u32>(pairs[1].v[1])}};
      norms[at] = {OfLargeWord(pairs[2].v[0]), OfLargeWord(pairs[2].v[1])};
    }
    Attention::Sync();  // all parts are there
    for (int u = thread; u < count; u += Attention::kThreads) {
      float total[4];
      if (exists) {
        const float all = Attention::template AddParts<kParts>(
            parts, [&](int c) { return norms[c * count + u]; },
            [&](int c) { return sums[c * count + u]; }, total);
        const float scale = 1.0f / all;
        TW_UNROLL
        for (int i = 0; i < 4; ++i) total[i] *= scale;
      } else {
        // Padding is zeros, a row without a place NaN.
        TW_UNROLL
        for (int i = 0; i < 4; ++i) total[i] = Its().position == -1 ? 0.0f : FloatOf(0x7fffffffu);
      }
      const int head = attention.first_head + u / kUnitsEach;
      StoreFourWords(out + (head * Spec::kHeadDim + 4 * unit_of(u)),
                     U32x4{{SmallWord(total[0], tag), SmallWord(total[1], tag),
                            SmallWord(total[2], tag), SmallWord(total[3], tag)}});
    }
    Attention::Sync();  // all are done with the memory
  }

  TW_DEVICE void Attend(const TokenStep& s) const {
    Sync();  // all warps are done with x, whose memory this is
    if (warp >= Attention::kWarps) return;
    RopeAttentionParams params = p.attention;
    params.attention.k_cache = reinterpret_cast<const void*>(s.a);
    params.attention.v_cache = reinterpret_cast<const void*>(s.b);
    const int heads = params.attention.kv_heads;  // each is one block of query heads
    const int items = heads * kParts;
    const u32 tag_in = Its().turn + s.tag_in, tag_out = Its().turn + s.tag_out;
    TW_NO_UNROLL
    for (int item = Cta(); item < items; item += Ctas())
      AttendTo(params, {item / kParts, item % kParts}, tag_in, tag_out);
    TW_NO_UNROLL
    for (int item = Cta(); item < items; item += Ctas())
      Merge(params, {item / kParts, item % kParts}, WordsOf(s.output), tag_out, tag_out);
  }

  /// `smem`: shared, TokenSmem bytes, aligned to 128.
  TW_DEVICE void Run() {
    const int thread = static_cast<int>(threadIdx.x);
    const U32x4* from = reinterpret_cast<const U32x4*>(p.steps);
    U32x4* to = reinterpret_cast<U32x4*>(smem + p.steps_at);
    for (int i = thread; i < 2 * p.step_count; i += kThreads + 32) to[i] = from[i];
    if (thread == 0) {
      Its().turn = LoadWordOnce(p.state + kTokenTurn);
      Its().failed = LoadWordOnce(p.state + kTokenError);
      Its().position = p.attention.attention.positions[0];
      Its().slot = p.attention.attention.slots[0];
    }
    for (int i = thread; i < 2 * kWarps * kStages; i += kThreads + 32)
      MbarrierInit(Landed(0, 0) + 8u * static_cast<u32>(i), 1);
    FenceBarrierInit();
    __syncthreads();  // steps and barriers are there
    if (warp == kWarps) {
      Load();
      return;
    }
    Stage stage{0, 0};
    u32 rotation = 0;
    TW_NO_UNROLL
    for (int i = 0; i < p.step_count; ++i) {
      const TokenStep& s = Step(i);
      if ((s.flags & kTokenAttends) != 0) {
        Attend(s);
        continue;
      }
      RoundInput(s);
      if ((s.flags & kTokenOther) != 0) {
        Multiply<Other>(s, stage, rotation);
      } else {
        Multiply<Body>(s, stage, rotation);
      }
      const Range units = UnitsOf(s);
      rotation += static_cast<u32>(units.end - units.begin);
    }
    // All CTAs have begun: this one has had words of each.
    if (Cta() == 0 && thread == 0)
      StoreWord(p.state + kTokenTurn, Its().turn + static_cast<u32>(p.turns));
  }
};

}  // namespace tw
