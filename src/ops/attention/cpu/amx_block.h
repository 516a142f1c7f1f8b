#pragma once

// One split of one block of attention on tiles (device/cpu/tiles.h), bf16 operands and f32 sums; a
// template over the tiles, which the kernel file gives as instructions and a test as an emulation.
// Everything here is in an unnamed namespace, so that each file keeps its own copy.
//
// Scores are computed transposed, S^T = K . Q^T: rows of keys are the first operand as they lie, and
// what follows has a query vector in each lane: maxima, sums and factors need no sum across lanes,
// and masks are comparisons with a vector of limits. The weights become the
// second operand of O^T = V^T . P^T by one conversion and one permutation of two rows; V^T is made
// once for all vectors of a block. (P . V wants V as it lies but P transposed, which is as many
// shuffles for every 64 vectors.)
//
// A vector's bits depend on its own positions alone: products sum positions in their order, what it
// does not see weighs exactly zero, and shifts and sums are its lane's.

#include <cstddef>
#include <cstdint>

#include "device/cpu/tiles.h"
#include "ops/attention/cpu/amx_operands.h"
#include "ops/attention/cpu/amx_scratch.h"
#include "ops/attention/cpu/amx_softmax.h"
#include "ops/attention/cpu/layout.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see above

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

struct StreamedTile {
  const void* at;
  std::ptrdiff_t stride;
};

/// Sums 0 and 2: two tiles of keys or values times one of queries or weights; sums 1 and 3 times another, if there
/// is one. Keys and values stream from the L2, once a group: as such they leave the L1 to queries, weights and sums,
/// which took an eighth off the time. Registers are freed as early as they can be.
template <class Tiles>
inline void MultiplyStep(Tiles& tiles, StreamedTile first, StreamedTile second,
                         const std::uint16_t* one, const std::uint16_t* other) {
  tiles.template LoadOnce<4>(first.at, first.stride);
  tiles.template Load<6>(one, 64);
  tiles.template DotBF16<0, 4, 6>();
  tiles.template LoadOnce<5>(second.at, second.stride);
  tiles.template DotBF16<2, 5, 6>();
  tiles.template Free<6>();
  if (other != nullptr) {
    tiles.template Load<7>(other, 64);
    tiles.template DotBF16<1, 4, 7>();
    tiles.template DotBF16<3, 5, 7>();
    tiles.template Free<7>();
  }
  tiles.template Free<4>();
  tiles.template Free<5>();
}

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
    MultiplyStep(tiles, {first.at + step * first.step, first.stride},
                 {second.at + step * second.step, second.stride}, q0 + step * kTileWords,
                 g.tiles == 2 ? q1 + step * kTileWords : nullptr);
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
    MultiplyStep(tiles, {v, 64}, {v + kTileWords, 64}, p, g.tiles == 2 ? p + kTileWords : nullptr);
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
      if (block_.softcap > 0) CapChunk(g, block_.softcap, Scores(chunk));
      const __m512 max[2] = {Greatest(g, 0, chunk, Scores(chunk)),
                             Greatest(g, g.tiles - 1, chunk, Scores(chunk))};
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

/// 16 vectors of the result as [vector][hd], in split_out.
inline const float* RowsOfTiles(int first, const AttentionScratch& s) {
  const int hd = s.hd_padded;
  for (int d = 0; d < hd; d += 16) {
    __m512 rows[16];
    for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_ps(s.out + first * hd + (d + i) * kLane);
    TransposeInRegisters(rows);
    for (int i = 0; i < 16; ++i) _mm512_storeu_ps(s.split_out + i * hd + d, rows[i]);
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
          .fetched = kSplit,
          .most_vectors = 1024,
          .tasks_per_worker = 2};
}

}  // namespace
}  // namespace tilewright
