// Gemma 2.
#include "model/arch/architecture.h"
#include "model/arch/gemma.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "gemma2";

constexpr TensorRule kTensors[] = {
    {"token_embd.weight", WeightRole::kEmbedding, Extent::kHidden, Extent::kVocab},
    {"output.weight", WeightRole::kOutput, Extent::kHidden, Extent::kVocab, Presence::kTied},
    {"output_norm.weight", WeightRole::kOutputNorm, Extent::kHidden},
    {"blk.{}.attn_norm.weight", WeightRole::kAttnNorm, Extent::kHidden},
    {"blk.{}.attn_q.weight", WeightRole::kQ, Extent::kHidden, Extent::kQueries},
    {"blk.{}.attn_k.weight", WeightRole::kK, Extent::kHidden, Extent::kKeys},
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
     .name = "tiny-test-gemma2",
     .layers = 3,
     .hidden = 96,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 24,
     .ffn = 160,
     .vocab = 1009,
     .context = 512,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 24,
     .window_period = 2,
     .attention_softcap = 1.5f,
     .logit_softcap = 2.5f},
    // As many blocks as the 27B model, whose scores have a scale of their own.
    {.architecture = kName,
     .name = "tiny-test-gemma2-27b",
     .layers = 46,
     .hidden = 32,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 20,
     .ffn = 48,
     .vocab = 401,
     .context = 512,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 16,
     .window_period = 2,
     .attention_softcap = 4,
     .logit_softcap = 3},
    {.architecture = kName,
     .name = "gemma-2-2b",
     .layers = 26,
     .hidden = 2304,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .ffn = 9216,
     .vocab = 256000,
     .context = 8192,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 4096,
     .window_period = 2,
     .attention_softcap = 50,
     .logit_softcap = 30},
    {.architecture = kName,
     .name = "gemma-2-9b",
     .layers = 42,
     .hidden = 3584,
     .heads = 16,
     .kv_heads = 8,
     .head_dim = 256,
     .ffn = 14336,
     .vocab = 256000,
     .context = 8192,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 4096,
     .window_period = 2,
     .attention_softcap = 50,
     .logit_softcap = 30},
    {.architecture = kName,
     .name = "gemma-2-27b",
     .layers = 46,
     .hidden = 4608,
     .heads = 32,
     .kv_heads = 16,
     .head_dim = 128,
     .ffn = 36864,
     .vocab = 256000,
     .context = 8192,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece,
     .norm_epsilon = 1e-6f,
     .window = 4096,
     .window_period = 2,
     .attention_softcap = 50,
     .logit_softcap = 30},
};

void Read(Hyperparameters& from, ModelConfig& config) {
  ReadGemma(from,
            {.windows = {.window = 4096, .period = 2, .scaled = true},
             .attention_softcap = 50,
             .logit_softcap = 30,
             .layers_of_27b = 46},
            config);
}

}  // namespace

// Files have 1 added to the weights of all norms, which the model's own checkpoints have not.
constinit const Architecture kGemma2 = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &Read,
    .block = &GeluBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
