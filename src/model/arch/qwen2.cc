// Qwen 1.5, 2 and 2.5.
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "qwen2";

constexpr TensorRule kTensors[] = {
    {"token_embd.weight", WeightRole::kEmbedding, Extent::kHidden, Extent::kVocab},
    {"output.weight", WeightRole::kOutput, Extent::kHidden, Extent::kVocab, Presence::kTied},
    {"output_norm.weight", WeightRole::kOutputNorm, Extent::kHidden},
    {"blk.{}.attn_norm.weight", WeightRole::kAttnNorm, Extent::kHidden},
    {"blk.{}.attn_q.weight", WeightRole::kQ, Extent::kHidden, Extent::kQueries},
    {"blk.{}.attn_q.bias", WeightRole::kQBias, Extent::kQueries},
    {"blk.{}.attn_k.weight", WeightRole::kK, Extent::kHidden, Extent::kKeys},
    {"blk.{}.attn_k.bias", WeightRole::kKBias, Extent::kKeys},
    {"blk.{}.attn_v.weight", WeightRole::kV, Extent::kHidden, Extent::kKeys},
    {"blk.{}.attn_v.bias", WeightRole::kVBias, Extent::kKeys},
    {"blk.{}.attn_output.weight", WeightRole::kAttnOutput, Extent::kQueries, Extent::kHidden},
    {"blk.{}.ffn_norm.weight", WeightRole::kFfnNorm, Extent::kHidden},
    {"blk.{}.ffn_gate.weight", WeightRole::kGate, Extent::kHidden, Extent::kFfn},
    {"blk.{}.ffn_up.weight", WeightRole::kUp, Extent::kHidden, Extent::kFfn},
    {"blk.{}.ffn_down.weight", WeightRole::kDown, Extent::kFfn, Extent::kHidden},
};

constexpr SynthShape kPresets[] = {
    {.architecture = kName,
     .name = "tiny-test-qwen2",
     .layers = 3,
     .hidden = 96,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 16,
     .ffn = 160,
     .vocab = 515,
     .context = 512,
     .rope_base = 10000,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "qwen2.5-0.5b",
     .layers = 24,
     .hidden = 896,
     .heads = 14,
     .kv_heads = 2,
     .head_dim = 64,
     .ffn = 4864,
     .vocab = 151936,
     .context = 32768,
     .rope_base = 1000000,
     .tied = true,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "qwen2.5-7b",
     .layers = 28,
     .hidden = 3584,
     .heads = 28,
     .kv_heads = 4,
     .head_dim = 128,
     .ffn = 18944,
     .vocab = 152064,
     .context = 32768,
     .rope_base = 1000000,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
};

}  // namespace

constinit const Architecture kQwen2 = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &ReadDense,
    .block = &DenseBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
