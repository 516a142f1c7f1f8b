// Qwen 3, dense.
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "qwen3";

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
    {"blk.{}.ffn_norm.weight", WeightRole::kFfnNorm, Extent::kHidden},
    {"blk.{}.ffn_gate.weight", WeightRole::kGate, Extent::kHidden, Extent::kFfn},
    {"blk.{}.ffn_up.weight", WeightRole::kUp, Extent::kHidden, Extent::kFfn},
    {"blk.{}.ffn_down.weight", WeightRole::kDown, Extent::kFfn, Extent::kHidden},
};

constexpr SynthShape kPresets[] = {
    {.architecture = kName,
     .name = "tiny-test-qwen3",
     .layers = 2,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 32,
     .ffn = 200,
     .vocab = 389,
     .context = 512,
     .rope_base = 1000000,
     .tied = true,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "qwen3-0.6b",
     .layers = 28,
     .hidden = 1024,
     .heads = 16,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 3072,
     .vocab = 151936,
     .context = 40960,
     .rope_base = 1000000,
     .tied = true,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "qwen3-8b",
     .layers = 36,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 12288,
     .vocab = 151936,
     .context = 40960,
     .rope_base = 1000000,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
};

}  // namespace

constinit const Architecture kQwen3 = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &ReadDense,
    .block = &DenseBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
