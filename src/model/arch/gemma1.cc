// The first Gemma, and CodeGemma.
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "gemma";

constexpr TensorRule kTensors[] = {
    {"token_embd.weight", WeightRole::kEmbedding, Extent::kHidden, Extent::kVocab},
    {"output.weight", WeightRole::kOutput, Extent::kHidden, Extent::kVocab, Presence::kTied},
    {"output_norm.weight", WeightRole::kOutputNorm, Extent::kHidden},
    {"blk.{}.attn_norm.weight", WeightRole::kAttnNorm, Extent::kHidden},
    {"blk.{}.attn_q.weight", WeightRole::kQ, Extent::kHidden, Extent::kQueries},
    {"blk.{}.attn_k.weight", WeightRole::kK, Extent::kHidden, Extent::kKeys},
    {"blk.{}.attn_v.weight", WeightRole::kV, Extent::kHidden, Extent::kKeys},
    {"blk.{}.attn_output.weight", WeightRole::kAttnOutput, Extent::kQueries, Extent::kHidden},
    {"blk.{}.ffn_norm.weight", WeightRole::kFfnNorm, Extent::kHidden},
    {"blk.{}.ffn_gate.weight", WeightRole::kGate, Extent::kHidden, Extent::kFfn},
    {"blk.{}.ffn_up.weight", WeightRole::kUp, Extent::kHidden, Extent::kFfn},
    {"blk.{}.ffn_down.weight", WeightRole::kDown, Extent::kFfn, Extent::kHidden},
};

constexpr SynthShape kPresets[] = {
    {.architecture = kName,
     .name = "tiny-test-gemma",
     .layers = 2,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 40,
     .ffn = 224,
     .vocab = 1021,
     .context = 512,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "gemma-2b",
     .layers = 18,
     .hidden = 2048,
     .heads = 8,
     .kv_heads = 1,
     .head_dim = 256,
     .ffn = 16384,
     .vocab = 256000,
     .context = 8192,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "gemma-7b",
     .layers = 28,
     .hidden = 3072,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 256,
     .ffn = 24576,
     .vocab = 256000,
     .context = 8192,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f},
};

void Read(Hyperparameters& from, ModelConfig& config) {
  ReadDense(from, config);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
}

}  // namespace

// Files have 1 added to the weights of all norms, which the model's own checkpoints have not.
constinit const Architecture kGemma = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &Read,
    .block = &GeluBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
