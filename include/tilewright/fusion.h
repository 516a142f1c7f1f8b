#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/graph.h"
#include "tilewright/result.h"

namespace tilewright {

/// Operations that may be computed together instead of one after the other; each can be switched on
/// its own. The first two decide how weights are laid out and take effect when a model is loaded;
/// the others rewrite a graph and take effect in Fuse. docs/fusion.md describes each.
enum class Fusion : std::uint8_t {
  kMergeQkv,      ///< "merge-qkv": q, k and v are one product
  kMergeGateUp,   ///< "merge-gate-up": gate and up are one product, rows paired by kGatedBlock
  kResidual,      ///< "residual": kMulMat, kAdd -> kMulMatAdd
  kSwiGlu,        ///< "swiglu": kSilu, kMul -> kSwiGlu; kGelu, kMul -> kGeGlu
  kMulMatSwiGlu,  ///< "mul-mat-swiglu": merged gate and up, kSilu, kMul -> kMulMatSwiGlu,
                  ///< of experts kMulMatExpertsSwiGlu
  kRopeScatter,   ///< "rope-scatter": kRope, kKvScatter -> kRopeScatter
  /// "rope-qkv": kRope of q, kRope and kKvScatter of k, kKvScatter of v -> kRopeQkvScatter
  kRopeQkv,
  /// "rope-attention": what kRopeQkv takes, and the kAttention that reads it -> kRopeAttention
  kRopeAttention,
  kAddNorm,  ///< "add-norm": kAdd, kRmsNorm -> kAddRmsNorm, which gives the sum too
  /// "norm-mul-mat": kRmsNorm, kMulMat -> kNormMulMat, with the residual in front of the norm in
  /// the product that makes it
  kNormMulMat,
  /// "quantise-once": activations that several int8 products read are rounded to i8x32 before them
  kQuantiseOnce,
};
inline constexpr int kFusions = static_cast<int>(Fusion::kQuantiseOnce) + 1;
std::string_view FusionName(Fusion fusion);

/// A set of fusions. A value.
class FusionSet {
 public:
  constexpr FusionSet() = default;  ///< none
  static constexpr FusionSet None() { return {}; }
  static constexpr FusionSet All() { return FusionSet((1u << kFusions) - 1); }
  static constexpr FusionSet Of(Fusion fusion) { return FusionSet(Bit(fusion)); }
  /// "all", "none", or names separated by commas: "residual,swiglu". kInvalidArgument names a word
  /// that is not a fusion and lists the valid ones.
  static Result<FusionSet> Parse(std::string_view text);

  constexpr bool Has(Fusion fusion) const { return (mask_ & Bit(fusion)) != 0; }
  constexpr FusionSet With(Fusion fusion) const { return FusionSet(mask_ | Bit(fusion)); }
  constexpr FusionSet Without(Fusion fusion) const { return FusionSet(mask_ & ~Bit(fusion)); }
  /// The inverse of Parse.
  std::string ToString() const;
  bool operator==(const FusionSet&) const = default;

 private:
  explicit constexpr FusionSet(std::uint32_t mask) : mask_(mask) {}
  static constexpr std::uint32_t Bit(Fusion f) { return 1u << static_cast<unsigned>(f); }
  std::uint32_t mask_ = 0;
};

/// A fused graph, and how its nodes correspond to those of the original.
struct FusedGraph {
  Graph graph;
  /// By id of the graph before: the id in `graph` of the node that has its result, or kNoNode where
  /// the result is never in memory.
  std::vector<NodeId> id_of;
};

/// What becomes of the roundings to bf16 or f16 between operations that could be one.
enum class BetweenFused : std::uint8_t {
  kRounded,  ///< kept: such operations stay apart, and fusing changes no result
  /// dropped where the fused operation takes less time (kSwiGlu, kMulMatSwiGlu, kRopeScatter,
  /// kRopeQkv, kRopeAttention, kNormMulMat): its result is the nearer one. For devices whose
  /// activations are bf16 or f16 to save memory.
  kUnrounded,
};

/// Whether `node` of `graph` can be run; usually KernelDispatch::Supports.
using SupportsNode = std::function<bool(const Graph& graph, const TensorNode& node)>;

/// `graph` with the patterns of `fusions` replaced, each by one node that computes the same
/// (kQuantiseOnce, which adds a node that others read, excepted). A pattern is replaced only where
/// no other node reads what lies between its nodes and none of it is kept (the sum of kAddNorm,
/// which has memory of its own, excepted), where it is not rounded to less than f32 or `between`
/// drops that, and where `supports` accepts the node that would take its place; everything else stays as it is. A
/// residual sum takes the memory of the residual where nothing reads that afterwards. Pure; the
/// result passes VerifyGraph. Precondition: VerifyGraph accepted `graph`.
FusedGraph Fuse(const Graph& graph, FusionSet fusions, const SupportsNode& supports,
                BetweenFused between = BetweenFused::kRounded);

}  // namespace tilewright
