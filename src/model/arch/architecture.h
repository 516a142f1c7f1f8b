#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/model.h"
#include "tilewright/synth.h"

namespace tilewright {

class Hyperparameters;

/// An extent of a tensor in terms of the hyperparameters.
enum class Extent : std::uint8_t {
  kOne,
  kHidden,
  kVocab,
  kQueries,  ///< heads * head_dim
  kKeys,     ///< kv_heads * head_dim
  kHeadDim,
  kHeads,
  kFfn,
  kRopePairs,  ///< half of the rotated elements of a head
  kExperts,
  kExpertFfn,
  kSharedFfn,
};
std::int64_t ExtentOf(Extent extent, const ModelConfig& config);

enum class Presence : std::uint8_t {
  kRequired,
  kOptional,
  kTied,  ///< if the file lacks it, the token embedding is used instead
};

/// Which models have a tensor, where an architecture has models with experts and models without.
enum class Kind : std::uint8_t { kAny, kDense, kSparse };

/// Some rows of a tensor: a matrix of its own.
struct TensorPart {
  WeightRole role;
  Extent n;
};

/// A tensor of the file: [k, n], or a vector of k elements if n is kOne; of experts [k, n, experts].
struct TensorRule {
  std::string_view name;  ///< "{}" is replaced by the block's number: "blk.{}.attn_q.weight"
  WeightRole role;        ///< that of the first part, if there are parts
  Extent k, n = Extent::kOne;
  Presence presence = Presence::kRequired;
  /// Matrices that the tensor holds, the rows of one after those of the other; n is then unused.
  std::span<const TensorPart> parts = {};
  Kind kind = Kind::kAny;
  Extent matrices = Extent::kOne;  ///< kExperts: a matrix for each
  bool table = false;  ///< its rows are looked up, of type f32; nothing multiplies by it

  bool OfBlock() const { return name.find("{}") != std::string_view::npos; }
  bool IsVector() const { return n == Extent::kOne && parts.empty(); }
  /// Whether a model as `config` describes it may have the tensor.
  bool AppliesTo(const ModelConfig& config) const {
    return kind == Kind::kAny || (kind == Kind::kSparse) == (config.experts > 0);
  }
  std::int64_t Rows(const ModelConfig& config) const;
  std::string NameIn(std::int32_t block) const;
};

/// Matrices of the same k and type that may be merged, so that one product computes them all.
struct MergeRule {
  WeightRole into;
  std::span<const WeightRole> parts;
  std::int64_t group = 0;             ///< rows alternate in groups of this many; 0: part after part
  Fusion fusion = Fusion::kMergeQkv;  ///< enables it
};

enum class Activation : std::uint8_t {
  kSilu,
  kGelu,
  kClampedSwiGlu,  ///< of gate and up together, up to BlockSpec::gate_limit
};

/// What a block computes beyond what its tensors imply. Norms before and after attention and
/// feed-forward, norms of query and key heads, and biases are used if the file has them.
struct BlockSpec {
  RopeParams rope;
  float attention_scale = 1.0f;
  /// Multiplies the rotated elements of queries, where the others must not be: otherwise it is part
  /// of attention_scale.
  float query_magnitude = 1.0f;
  std::int32_t window = 0;      ///< positions that a row attends to, itself included; 0: all
  float attention_softcap = 0;  ///< c: scaled scores become c * tanh(score / c); 0: unchanged
  Activation activation = Activation::kSilu;  ///< of the gate
  float gate_limit = 0;                       ///< of kClampedSwiGlu
};

/// What an architecture computes, as data; one file each in this folder. The loader, the check of
/// names, the builder of passes, synthetic models and the bandwidth floor all use it.
struct Architecture {
  std::string_view name;  ///< `general.architecture`, and the prefix of the metadata keys
  RopeMode rope = RopeMode::kHalfSplit;
  /// Reads the hyperparameters; the reader keeps the first error.
  void (*read)(Hyperparameters& from, ModelConfig& config) = nullptr;
  BlockSpec (*block)(const ModelConfig& config, std::int32_t index) = nullptr;
  std::span<const TensorRule> tensors;  ///< in the order in which a synthetic file has them
  std::span<const MergeRule> merges;
  std::span<const SynthShape> presets;  ///< shapes of published models
};

/// Every supported architecture.
std::span<const Architecture* const> Architectures();
/// nullptr if there is none of that name.
const Architecture* FindArchitecture(std::string_view name);
/// The architecture named by the file's `general.architecture`. Errors: kNotFound without the key;
/// kUnsupported lists the supported ones.
Result<const Architecture*> ArchitectureOf(const GgufFile& file);

/// As ReadModelConfig, but with a given architecture, whatever the file's metadata says.
Result<ModelConfig> ReadModelConfig(const GgufFile& file, const Architecture& architecture);

/// kUnsupported names the first tensor that no rule names. Ignoring it would change the results.
Status CheckTensorNames(const GgufFile& file, const Architecture& architecture,
                        const ModelConfig& config);

/// A dense block as `config` describes it, gated by SiLU.
BlockSpec DenseBlock(const ModelConfig& config, std::int32_t index);
/// The same, gated by gelu.
BlockSpec GeluBlock(const ModelConfig& config, std::int32_t index);

inline constexpr WeightRole kQkvParts[] = {WeightRole::kQ, WeightRole::kK, WeightRole::kV};
inline constexpr WeightRole kGateUpParts[] = {WeightRole::kGate, WeightRole::kUp};
inline constexpr MergeRule kDenseMerges[] = {
    {.into = WeightRole::kQkv, .parts = kQkvParts, .fusion = Fusion::kMergeQkv},
    {.into = WeightRole::kGateUp,
     .parts = kGateUpParts,
     .group = kGatedBlock,
     .fusion = Fusion::kMergeGateUp},
};
inline constexpr WeightRole kExpertGateUpParts[] = {WeightRole::kExpertGate, WeightRole::kExpertUp};
inline constexpr WeightRole kSharedGateUpParts[] = {WeightRole::kSharedGate, WeightRole::kSharedUp};
/// Of architectures with experts: those of dense blocks too.
inline constexpr MergeRule kSparseMerges[] = {
    kDenseMerges[0],
    kDenseMerges[1],
    {.into = WeightRole::kExpertGateUp,
     .parts = kExpertGateUpParts,
     .group = kGatedBlock,
     .fusion = Fusion::kMergeGateUp},
    {.into = WeightRole::kSharedGateUp,
     .parts = kSharedGateUpParts,
     .group = kGatedBlock,
     .fusion = Fusion::kMergeGateUp},
};

}  // namespace tilewright
