// Gemma 3, its text part.
#include "model/arch/architecture.h"
#include "model/arch/gemma.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "gemma3";

constexpr TensorRule kTensors[] = {
    {"token_embd.weight", WeightRole::kEmbedding, Extent::kHidden, Extent::kVocab},
    {"output.weight", WeightRole::kOutput, Extent::kHidden, Extent::kVocab, Presence::kTied},
    {"output_norm.weight", WeightRole::kOutputNorm, Extent::kHidden},
    {"blk.{}.attn_norm.weight", WeightRole::kAttnNorm, Extent::kHidden},
    {"blk.{}.attn_q.weight", WeightRole::kQ, Extent::kHidden, Extent::kQueries},
    {"blk.{}.attn_q_norm.weight", WeightRole::kQNorm, Extent::kHeadDim},
    {"blk.{}.attn_k.weight", WeightRole::kK, Extent::kHidden, Extent::kKeys},
    {"blk.{}.attn_k_norm.weight", WeightRole::kKNorm, Extent::kHeadDim},
    {"blk.{}.attn_v.weight", WeightRole::kV, Extent::kHidden, Extent::kKeys},
    {"blk.{}.attn_output.weight", WeightRole::kAttnOutput, Extent::kQueries, Extent::kHidden},
    {"blk.{}.post_attention_norm.weight", WeightRole::kAttnPostNorm, Extent::kHidden},
    {"blk.{}.ffn_norm.weight", WeightRole::kFfnNorm, Extent::kHidden},
    {"blk.{}.ffn_gate.weight", WeightRole::kGate, Extent::kHidden, Extent::kFfn},
    {"blk.{}.ffn_up.weight", WeightRole::kUp, Extent::kHidden, Extent::kFfn},
    {"blk.{}.ffn_down.weight", WeightRole::kDown, Extent::kFfn, Extent::kHidden},
    {"blk.{}.post_ffw_norm.weight", WeightRole::kFfnPostNorm, Extent::kHidden},
};

constexpr SynthShape kPresets[] = {
    {.architecture = kName,
     .name = "tiny-test-gemma3",
     .layers = 7,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 32,
     .ffn = 176,
     .vocab = 1013,
     .context = 512,
     .rope_base = 1000000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 24,
     .window_period = 6,
     .windowed_rope_base = 10000},
    {.architecture = kName,
     .name = "tiny-test-gemma3-27b",
     .layers = 62,
     .hidden = 32,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 20,
     .ffn = 48,
     .vocab = 397,
     .context = 512,
     .rope_base = 1000000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 16,
     .window_period = 6,
     .windowed_rope_base = 10000},
    {.architecture = kName,
     .name = "gemma-3-270m",
     .layers = 18,
     .hidden = 640,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 256,
     .ffn = 2048,
     .vocab = 262144,
     .context = 32768,
     .rope_base = 1000000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 512,
     .window_period = 6,
     .windowed_rope_base = 10000},
    {.architecture = kName,
     .name = "gemma-3-1b",
     .layers = 26,
     .hidden = 1152,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 256,
     .ffn = 6912,
     .vocab = 262144,
     .context = 32768,
     .rope_base = 1000000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 512,
     .window_period = 6,
     .windowed_rope_base = 10000},
};

void Read(Hyperparameters& from, ModelConfig& config) {
  ReadGemma(
      from,
      {.windows = {.period = 6, .rope_base = 10000}, .attention_softcap = {}, .layers_of_27b = 62},
      config);
}

}  // namespace

// Files have 1 added to the weights of all norms, which the model's own checkpoints have not.
constinit const Architecture kGemma3 = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &Read,
    .block = &GeluBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
