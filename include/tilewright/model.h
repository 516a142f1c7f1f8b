#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/executor.h"
#include "tilewright/fusion.h"
#include "tilewright/gguf.h"
#include "tilewright/graph.h"
#include "tilewright/kernel_dispatch.h"
#include "tilewright/result.h"
#include "tilewright/step_times.h"
#include "tilewright/tokenizer.h"
#include "tilewright/weight_packer.h"

namespace tilewright {

/// The shape of a model, from GGUF metadata.
struct ModelConfig {
  std::string architecture;  ///< `general.architecture`
  std::string name;
  std::int32_t layers = 0;
  std::int32_t hidden = 0;
  std::int32_t ffn = 0;
  std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
  /// Of a sparse feed-forward: experts, those that a row uses, and the width of one; 0: it is dense.
  std::int32_t experts = 0, experts_used = 0, expert_ffn = 0;
  std::int32_t shared_ffn = 0;  ///< width of the expert that all rows use
  /// The weights of the chosen experts are their shares among the chosen, not among all.
  bool normalise_experts = true;
  std::int32_t vocab = 0;
  std::int32_t context = 0;  ///< context length that the model was trained with
  float epsilon = 1e-5f;
  /// Before RoPE was scaled; as `context` where the file does not tell.
  std::int32_t original_context = 0;
  RopeParams rope;
  /// Divide the frequencies of the pairs, computed from the metadata (YaRN); empty: none.
  std::vector<float> rope_factors;
  /// The cosines and sines of rotations are multiplied by it, so that scores do not grow flatter
  /// where frequencies are scaled (YaRN, long factors).
  float rope_magnitude = 1.0f;
  bool tied = false;           ///< the output projection is the embedding table
  std::int32_t window = 0;     ///< positions that a row of a block in `windowed` sees; 0: none is
  std::vector<bool> windowed;  ///< by block; empty: none
  RopeParams windowed_rope;    ///< of these blocks
  float attention_scale = 0;   ///< of scores; 0: 1 / sqrt(head_dim)
  float attention_softcap = 0, logit_softcap = 0;  ///< c of c * tanh(x / c); 0: none
  float embedding_scale = 1;                       ///< embeddings are multiplied by it
};
/// Errors name the key or tensor: a missing key, an unknown architecture (the message lists the
/// supported ones), heads that do not divide evenly.
Result<ModelConfig> ReadModelConfig(const GgufFile& file);
/// Bytes of the tensors that a pass may read in full: all but a table of embeddings which does not give the
/// logits too.
std::int64_t WeightBytes(const GgufFile& file);

/// The role of a weight in the model. Those from kAttnNorm on belong to a block.
enum class WeightRole : std::uint8_t {
  kEmbedding,
  kOutputNorm,
  kOutput,
  kRopeFactors,       ///< divide the frequencies of the pairs
  kRopeFactorsLong,   ///< instead, in sessions with more context than the original
  kRopeFactorsShort,  ///< instead, in all others
  /// Queries are multiplied by it, element by element of a head; made by the loader where only the
  /// rotated elements have a magnitude.
  kQueryScale,
  kEmbeddingScale,  ///< embeddings are multiplied by it; made by the loader from the config
  kAttnNorm,
  kQ,
  kK,
  kV,
  kQkv,  ///< merged: the rows of q, then k, then v
  kQBias,
  kKBias,
  kVBias,
  kQNorm,  ///< applied to each head
  kKNorm,
  kAttnOutput,
  kAttnOutputBias,
  kAttnSinks,     ///< [heads]: a logit of each head in its softmax (tilewright/attention.h)
  kAttnPostNorm,  ///< applied to what attention adds to the residual
  kFfnNorm,
  kGate,
  kUp,
  kGateUp,  ///< merged: the rows of gate and up paired by kGatedBlock
  kDown,
  kRouter,  ///< [hidden, experts]
  kRouterBias,
  kExpertGate,      ///< [hidden, expert_ffn, experts]
  kExpertUp,        ///< as kExpertGate
  kExpertGateUp,    ///< merged: of each expert, the rows of gate and up paired by kGatedBlock
  kExpertDown,      ///< [expert_ffn, hidden, experts]
  kExpertGateBias,  ///< [expert_ffn, experts]: a row for each expert
  kExpertUpBias,
  kExpertDownBias,  ///< [hidden, experts]
  kSharedRouter,    ///< a vector: how much of the shared expert a row gets
  kSharedGate,
  kSharedUp,
  kSharedGateUp,
  kSharedDown,
  kFfnPostNorm,
};
inline constexpr std::size_t kWeightRoles = static_cast<std::size_t>(WeightRole::kFfnPostNorm) + 1;

/// A loaded weight w [k, n], or [k, n, experts]; a vector has n = 1.
struct Weight {
  TensorView view;
  Pack pack = kPackPlain;
  TensorOp op = TensorOp::kNone;  ///< the product it was laid out for; kNone: not multiplied
};

/// The weights of one block, or those of a model that belong to no block.
class WeightSet {
 public:
  /// nullptr if the model has no weight of that role, or has merged it with others.
  const Weight* Find(WeightRole role) const {
    const Weight& weight = (*this)[role];
    return weight.view.data != nullptr ? &weight : nullptr;
  }
  const Weight& operator[](WeightRole role) const { return all_[static_cast<std::size_t>(role)]; }
  Weight& operator[](WeightRole role) { return all_[static_cast<std::size_t>(role)]; }
  /// One for every role; those that are absent have no data.
  std::span<const Weight> all() const { return all_; }

 private:
  std::array<Weight, kWeightRoles> all_{};
};

struct Architecture;

struct ModelOptions {
  bool fuse = true;  ///< false: same as fusions = FusionSet::None()
  /// Fusions for which weights are laid out and which sessions of the model apply to their graphs,
  /// as far as their dispatch supports them.
  FusionSet fusions = FusionSet::All();
  WeightPacker* packer = nullptr;
  Executor* executor = nullptr;  ///< for packing
  Device* device = nullptr;      ///< holds the weights; nullptr: HostDevice()
  /// Called with the fraction done; returning false cancels the load (ErrorCode::kCancelled).
  std::function<bool(double)> progress;
};

/// A model's weights, packed and read-only. Any number of sessions on any threads may share one.
class Model {
 public:
  /// Maps, checks and packs. The file's pages are released once packed, except those of the
  /// embedding table. Errors: those of GgufFile::Open and ReadModelConfig; kCorrupt names a tensor
  /// of the wrong shape, kNotFound one that is missing, and kUnsupported one whose type is not
  /// supported or that the architecture does not have; kOutOfMemory says how much memory was needed
  /// and how much is available.
  static Result<std::unique_ptr<Model>> Load(const std::string& path, const ModelOptions& options);
  /// The same for a file that is open, or that is none (GenerateSynthetic).
  static Result<std::unique_ptr<Model>> Load(GgufFile file, const ModelOptions& options);

  const ModelConfig& config() const { return config_; }
  const Architecture& architecture() const { return *architecture_; }
  const GgufFile& file() const { return file_; }
  /// Embedding, output norm and projection, RoPE factors.
  const WeightSet& globals() const { return globals_; }
  std::span<const WeightSet> blocks() const { return blocks_; }
  /// The fusions that the model was loaded with.
  FusionSet fusions() const { return fusions_; }
  /// Bytes of weights that one token of decode reads: all but the embedding table, plus one of its
  /// rows.
  std::int64_t bytes_per_token() const { return bytes_per_token_; }
  std::int64_t parameters() const { return parameters_; }

 private:
  friend class ModelLoader;
  explicit Model(GgufFile file) : file_(std::move(file)) {}

  GgufFile file_;
  const Architecture* architecture_ = nullptr;
  ModelConfig config_;
  FusionSet fusions_;
  DeviceMemory weights_;
  WeightSet globals_;
  std::vector<WeightSet> blocks_;
  std::int64_t bytes_per_token_ = 0;
  std::int64_t parameters_ = 0;
};

/// The numbers of rows that passes are prepared for. Extra rows are padding, which every operation
/// ignores.
enum class RowBuckets : std::uint8_t {
  kAuto,         ///< kExact if the host runs the kernels, else kPowersOfTwo
  kExact,        ///< a graph for each number of rows
  kPowersOfTwo,  ///< few graphs for any number of rows
};

/// Whether products that follow each other, as o, gate and up, down and the next layer's q, k and v do, are one
/// launch in passes of at most 64 rows, where the device and the model have kernels for that
/// (docs/fusion.md). Results differ within the rounding of activations; so a session that races may
/// give other bits than one before it.
enum class Chains : std::uint8_t {
  kOff,
  kRace,  ///< in passes of 8 to 64 rows that decode, where the first of them take less time so
  kOn,    ///< always; why the first pass without cannot have them is a warning
};

/// What the first passes of so many rows took.
struct ChainVerdict {
  std::int32_t rows = 0;
  double separate_us = 0, chained_us = 0;  ///< medians

  bool chained() const { return chained_us < separate_us; }
};

struct SessionOptions {
  DataType kv = DataType::kF16;  ///< f32, f16, bf16, q8_0; f64 for the reference dispatch
  /// Type of the tensors between operations; f64 for the reference dispatch.
  DataType activations = DataType::kF32;
  /// Types of their own for what the norms give to products, and for the logits: f32, f16 or bf16.
  /// kNone: that of the activations. A kernel must take them with the weights as they lie.
  DataType normed = DataType::kNone, logits = DataType::kNone;
  /// Positions of one sequence; 0: the model's or, where the device's free memory has no room for
  /// the KV cache of that, as many as fit, which a warning tells.
  std::int32_t context = 0;
  std::int32_t slots = 1;       ///< sequences held at the same time
  std::int32_t max_rows = 512;  ///< rows per pass; longer prompts are split into several passes
  /// Positions per page of the KV cache, a multiple of 64. The cache allocates memory by the page.
  std::int32_t page_size = 256;
  RowBuckets buckets = RowBuckets::kAuto;
  Chains chains = Chains::kOff;
};

/// As the token of a row: the best one of the pass that was submitted before, which the host may not
/// know yet (Session::Submit).
inline constexpr TokenId kBestOfLast = -2;

/// One row of a forward pass.
struct Row {
  TokenId token = 0;
  std::int32_t position = 0;
  std::int32_t slot = 0;
  bool logits = false;  ///< compute the logits of this row
};

/// The best logits of the rows of a pass, best first, in the order of a sampler
/// (tilewright/top_k.h).
struct TopLogits {
  std::int32_t k = 0;
  /// [rows][k]. -1 behind the last token that is not excluded by minus infinity, and everywhere in
  /// a row whose logits have NaN or plus infinity.
  std::span<const TokenId> ids;
  std::span<const float> logits;  ///< [rows][k]; empty for k = 1, where only ids are read back
};

/// KV cache, graphs and activations for running a model, in the memory of the dispatch's device and
/// on its default stream; the model's weights must be on that device. One thread at a time; `model`
/// and `dispatch` must outlive it.
///
/// The KV cache grows as positions are filled and never shrinks; pages that a sequence gives up
/// when it goes back are reused by other sequences. When the cache moves, graphs are prepared
/// again.
class Session {
 public:
  static Result<std::unique_ptr<Session>> Create(const Model& model, KernelDispatch& dispatch,
                                                 const SessionOptions& options);
  ~Session();

  /// Runs the rows and returns logits [rows with `logits` set][vocab], valid until the next call.
  ///
  /// A slot is filled from position 0 without gaps. The position of its first row in a pass may be
  /// at most the number of positions that the slot holds; a smaller one goes back, discarding what
  /// lay from there on. Each further row of the slot in that pass follows by one. Rows of different
  /// slots may interleave.
  ///
  /// Errors: kInvalidArgument names the row, the value and the limit (token, slot, position, more
  /// than max_rows rows); kExhausted, a position beyond the context; kOutOfMemory, no memory for
  /// more pages of the cache. The first two reject the pass and change nothing; after any other
  /// error, the positions from the pass's rows on are discarded.
  Result<std::span<const float>> Forward(std::span<const Row> rows);

  /// As Forward, but the pass ends with finding the `k` best logits of each such row where they are
  /// computed, and only these are read back. Valid until the next call that runs a pass.
  ///
  /// Errors: as Forward; kInvalidArgument for k below 1; kUnsupported, before anything runs, where
  /// the dispatch has no kernel for it (those of this library find up to top_k::kMostK).
  Result<TopLogits> ForwardTop(std::span<const Row> rows, std::int32_t k);

  /// All logits of the last pass, as Forward would have returned them; for a row in which
  /// ForwardTop found none. Must follow that pass before any other call. Empty where no row wanted
  /// logits; kInvalidArgument where no pass ran.
  Result<std::span<const float>> Logits();

  /// Queues a pass that ends with the best token of every row, and returns without waiting for it:
  /// the device goes from pass to pass while the host still reads what the last one found. At most
  /// two passes may be submitted and not received. Any other call that runs a pass waits for those
  /// and drops what they found; positions that they filled beyond a text's end are written over.
  ///
  /// Every row must want logits. Tokens are all given, or all kBestOfLast: that which the pass
  /// submitted in front found for the row in the same place, whose slot must be the same. Where it
  /// found none (-1), the row is ignored, and finds none that means anything.
  ///
  /// Errors: as ForwardTop, and kInvalidArgument for what is said here; these reject the pass. After
  /// any other error all submitted passes are dropped, and the positions filled since the last time
  /// when all had been received are discarded.
  Status Submit(std::span<const Row> rows);
  /// Waits for the oldest pass that was submitted; the best token of each of its rows, -1 where a row
  /// has no order. Valid until the second call from now that submits a pass. kInvalidArgument: there
  /// is none.
  Result<std::span<const TokenId>> Receive();

  /// Whether passes run while the host goes on, so that submitting them ahead saves time. Elsewhere
  /// Submit returns when the pass has run.
  bool asynchronous() const;

  /// Feeds `tokens` to `slot` from `position` on, in passes of max_rows, and returns the logits of
  /// the last token. Once `cancel` is set no further pass begins: kCancelled, and the slot keeps what
  /// those before it filled.
  Result<std::span<const float>> Prefill(std::span<const TokenId> tokens, std::int32_t slot,
                                         std::int32_t position,
                                         const std::atomic<bool>* cancel = nullptr);

  /// Runs `rows` as Forward does and times the steps of their pass (step_times.h); `repeat` samples
  /// of each. The positions from those of `rows` on are discarded: the timing overwrites what the
  /// steps work on. Errors: Forward's and TimeSteps'.
  Result<StepTimes> TimePass(std::span<const Row> rows, int repeat);

  /// The races between passes with chains of products and without that are decided, by rows
  /// (SessionOptions::chains).
  std::vector<ChainVerdict> chain_verdicts() const;

  /// The graph for `rows` rows of which `logits_rows` compute logits; built, verified, planned and
  /// prepared once.
  Result<const Graph*> GraphFor(std::int32_t rows, std::int32_t logits_rows);

  std::int32_t context() const;
  /// Rows that a pass may have: as requested, at most context * slots.
  std::int32_t max_rows() const;
  std::int64_t kv_bytes() const;               ///< allocated for pages so far
  std::int64_t kv_bytes_per_position() const;  ///< for one position of one sequence
  std::int64_t kv_pages_held() const;          ///< pages with positions that slots hold

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
