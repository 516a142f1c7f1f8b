#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/kernel.h"
#include "tilewright/tensor.h"

namespace tilewright {

// The vocabulary of graphs: what a node computes, its parameters, and how an operation declares
// which nodes it implements.

/// What a node computes. The first eight operations and kKvScatter are all that an unfused layer
/// uses.
enum class TensorOp : std::uint8_t {
  kNone,     ///< a leaf: weight, input or KV cache
  kMulMat,   ///< (x [k, m], w [k, n]) -> [n, m]; w may be quantised and packed
  kRmsNorm,  ///< (x [hidden, m], weight [hidden]) -> [hidden, m]
  kAdd,      ///< (a, b) -> a + b, equal shapes
  /// (x [head_dim, heads, m], positions [m], frequency factors [rope_dims / 2] or none) -> as x
  kRope,
  /// (q [head_dim, heads, m], k cache, v cache, positions [m], slots [m], pages or none, sinks [heads]
  /// or none) -> [head_dim * heads, m]
  kAttention,
  kCopy,  ///< (x) -> x, converting the type
  kMul,   ///< (a, b) -> a * b
  kSilu,  ///< (x) -> x / (1 + exp(-x))
  // Through DispatchExtra:
  /// (x [head_dim, kv_heads, m], cache, positions [m], slots [m]) -> the cache, written in place
  kKvScatter,
  kEmbedding,  ///< (table [hidden, rows], ids [m]) -> [hidden, m]: row ids[i] of the table
  kMulMatAdd,  ///< fused kMulMat + kAdd: (x, w, residual [n, m]) -> [n, m]; may be in place on the
               ///< residual
  kMulMatSwiGlu,   ///< fused gate and up projection: (x, w [k, 2 * n], rows paired by kGatedBlock)
                   ///< -> silu(gate) * up, [n, m]
  kSwiGlu,         ///< fused kSilu + kMul: (gate, up) -> silu(gate) * up
  kGelu,           ///< (x) -> gelu(x) by its approximation with tanh
  kGeGlu,          ///< fused kGelu + kMul: (gate, up) -> gelu(gate) * up
  kSoftcap,        ///< (x) -> c * tanh(x / c)
  kClampedSwiGlu,  ///< (gate, up) -> both clamped, as elementwise::Function::kClampedSwiGlu says
  kRopeScatter,    ///< fused kRope + kKvScatter: (x [head_dim, kv_heads, m], cache, positions [m],
                   ///< slots [m], pages or none, frequency factors or none) -> the cache
  /// fused kRope of q, kRopeScatter of k, kKvScatter of v: (q [head_dim, heads, m],
  /// k, v [head_dim, kv_heads, m], turned q, a kBuffer, k cache, a kBuffer in a cache, v cache,
  /// positions [m], slots [m], pages or none, frequency factors or none) -> the v cache
  kRopeQkvScatter,
  /// fused kRopeQkvScatter + kAttention: (q [head_dim, heads, m], k, v [head_dim, kv_heads, m],
  /// k cache and v cache, kBuffers in caches, positions [m], slots [m], pages or none, frequency
  /// factors or none) -> [head_dim * heads, m]; q is left as it is
  kRopeAttention,
  kAddRmsNorm,  ///< fused kAdd + kRmsNorm: (a, b, weight [hidden], sum) -> the norm of a + b,
                ///< which is written to `sum`, a kBuffer
  /// fused kRmsNorm + kMulMat: (x [k, m], w [k, n], norm weight [k]) -> [n, m]
  kNormMulMat,
  /// fused kRmsNorm + kMulMatSwiGlu: (x [k, m], w [k, 2 * n], norm weight [k]) -> [n, m]
  kNormMulMatSwiGlu,
  /// (x [n, m], values [k, m] or none, and none or all of tokens [m], positions [m], turns [m] and
  /// found [m, turns], all but x kBuffers) -> ids of the k largest [k, m] i32, best first; their
  /// values are written to `values`; the others are handed over (tilewright/top_k.h)
  kTopK,
  /// (logits [experts, m], sources [used * m] i32, places [used, m] i32, weights [used, m], experts
  /// [used * m] i32 or none, all but the first kBuffers) -> offsets [experts + 1] i32: the experts of
  /// every row (tilewright/route.h)
  kRoute,
  /// (x [k, m], w [k, n, experts], offsets [experts + 1], sources [pairs] or none) -> [n, pairs]: row
  /// sources[i] of x, or row i, times the matrix of the expert whose pair i is
  kMulMatExperts,
  /// fused gate and up of experts: as kMulMatExperts with w [k, 2 * n, experts], rows paired by
  /// kGatedBlock -> silu(gate) * up, [n, pairs]
  kMulMatExpertsSwiGlu,
  /// (x [n, pairs], places [used, m], weights [used, m], shared [n, m] and gate [1, m], or neither)
  /// -> [n, m]: the weighted sum over the experts of a row (tilewright/combine.h)
  kCombine,
  // No computation:
  kView,  ///< part of another tensor
  /// memory for a further result of a later node, which has it as an input. With alias_of that of
  /// a cache, or of an operand of that node, which is overwritten then.
  kBuffer,
};
std::string_view TensorOpName(TensorOp op);

/// Whether a node of this kind is run: it is neither a leaf nor a name for memory.
constexpr bool Computes(TensorOp op) {
  return op != TensorOp::kNone && op != TensorOp::kView && op != TensorOp::kBuffer;
}
/// Whether a node of this kind writes rows of a cache and leaves the rest of it as it is.
constexpr bool WritesCache(TensorOp op) {
  return op == TensorOp::kKvScatter || op == TensorOp::kRopeScatter ||
         op == TensorOp::kRopeQkvScatter || op == TensorOp::kRopeAttention;
}

/// What a leaf is for; decides who owns the memory and whether it may be written: a kCache is what
/// one pass leaves for the next.
enum class LeafKind : std::uint8_t { kNotLeaf, kWeight, kInput, kCache };

enum class RopeMode : std::uint8_t {
  kInterleaved,  ///< pairs (2i, 2i + 1): GGUF's llama
  kHalfSplit,    ///< pairs (i, i + dims / 2): NeoX, Qwen
};

/// Rotary embedding: angle(i, position) = position * freq_scale * base^(-2 i / dims) / factor[i].
struct RopeParams {
  RopeMode mode = RopeMode::kInterleaved;
  std::int32_t dims = 0;  ///< rotated elements of a head, even, <= head_dim; the rest are copied
  float base = 10000.0f;
  float freq_scale = 1.0f;
  /// Llama-3 frequency scaling, off if scaling_factor == 0. Frequencies of wavelengths above
  /// original_context / low_freq_factor are divided by scaling_factor, those below original_context
  /// / high_freq_factor are kept, and those in between are interpolated.
  float scaling_factor = 0.0f, low_freq_factor = 1.0f, high_freq_factor = 4.0f;
  std::int32_t original_context = 8192;
  auto operator<=>(const RopeParams&) const = default;
};

/// Parameters of a node; each op uses only its own.
struct OpParams {
  float epsilon = 1e-5f;         ///< kRmsNorm, kAddRmsNorm, kNormMulMat, kNormMulMatSwiGlu
  RopeParams rope;               ///< kRope, kRopeScatter, kRopeQkvScatter, kRopeAttention
  float attention_scale = 0.0f;  ///< kAttention, kRopeAttention: usually 1 / sqrt(head_dim)
  /// kAttention, kRopeAttention: number of positions that a row sees, its own being the last; 0:
  /// all.
  std::int32_t attention_window = 0;
  float softcap = 0.0f;          ///< kSoftcap: c; attention: the same of scaled scores, 0: none
  float gate_limit = 0.0f;       ///< kClampedSwiGlu: c
  std::int32_t layer = -1;       ///< of the cache's users: for messages and profiles
  bool route_normalise = true;   ///< kRoute: weights are shares among the chosen, not among all
  float route_scale = 1.0f;      ///< kRoute: of the weights
  std::int64_t view_offset = 0;  ///< kView: elements into the source
};

/// A node with the views of its inputs, as operations see it.
struct NodeView {
  static constexpr std::size_t kMaxInputs = 10;
  struct Input {
    TensorView view;                        ///< no data and no type if the input is absent
    Pack pack = kPackPlain;                 ///< of a weight
    LeafKind storage = LeafKind::kNotLeaf;  ///< kind of the leaf whose memory it occupies
    bool present = false;
  };
  TensorOp op = TensorOp::kNone;
  std::array<Input, kMaxInputs> inputs;
  std::size_t input_count = 0;
  TensorView out;
  Pack pack = kPackPlain;
  OpParams params;
  int overwrites = -1;  ///< index of the input that the result overwrites; -1: none

  const TensorView& in(std::size_t i) const { return inputs[i].view; }
};

/// Which inputs of a node say that rows are written into a cache, and where.
struct CacheWriteInputs {
  std::size_t x = 0, cache = 1, positions = 2, slots = 3, pages = 4;
};

/// Keeps the first fault of a node. Messages read "inputs[1].shape[0] = 1536, expected k = 576".
class NodeCheck {
 public:
  bool ok() const { return fault_.empty(); }
  const std::string& fault() const { return fault_; }
  void Fault(std::string what) {
    if (ok()) fault_ = std::move(what);
  }
  void Expect(std::string_view field, std::int64_t have, std::int64_t want, std::string_view what);
  void ExpectType(std::string_view field, DataType have, DataType want);
  void ExpectFloat(std::string_view field, DataType have);
  void ExpectSameShape(std::string_view field, const TensorView& have, const TensorView& want);
  /// Expects an int32 vector with one element for each of `rows` rows.
  void ExpectRows(std::string_view field, const TensorView& have, std::int64_t rows);
  /// Expects x [head_dim, kv_heads, m], a cache, positions [m], slots [m] and, where the cache is
  /// paged, its page table.
  void ExpectCacheRows(const NodeView& node, const CacheWriteInputs& at);
  /// The same, and that the cache is the result.
  void ExpectCacheWrite(const NodeView& node, const CacheWriteInputs& at = {});

 private:
  std::string fault_;
};

/// What an operation declares about one kind of node: its name, the number of its inputs, which of
/// them the result may overwrite, and a check of types and shapes.
struct NodeRule {
  TensorOp op = TensorOp::kNone;
  std::string_view name;
  std::uint8_t min_inputs = 0, max_inputs = 0;
  std::uint32_t in_place = 0;  ///< bit i: the result may take the memory of inputs[i]
  std::uint32_t writes = 0;    ///< bit i: inputs[i] is a kBuffer that the node writes
  void (*check)(const NodeView& node, NodeCheck& check) = nullptr;
};

}  // namespace tilewright
