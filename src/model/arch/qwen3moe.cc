// Qwen 3 with experts.
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "qwen3moe";

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
    {.name = "blk.{}.ffn_gate_inp.weight",
     .role = WeightRole::kRouter,
     .k = Extent::kHidden,
     .n = Extent::kExperts},
    {.name = "blk.{}.ffn_gate_exps.weight",
     .role = WeightRole::kExpertGate,
     .k = Extent::kHidden,
     .n = Extent::kExpertFfn,
     .matrices = Extent::kExperts},
    {.name = "blk.{}.ffn_up_exps.weight",
     .role = WeightRole::kExpertUp,
     .k = Extent::kHidden,
     .n = Extent::kExpertFfn,
     .matrices = Extent::kExperts},
    {.name = "blk.{}.ffn_down_exps.weight",
     .role = WeightRole::kExpertDown,
     .k = Extent::kExpertFfn,
     .n = Extent::kHidden,
     .matrices = Extent::kExperts},
};

void Read(Hyperparameters& from, ModelConfig& config) {
  ReadTransformer(from, config);
  ReadExperts(from, {}, config);
}

constexpr SynthShape kPresets[] = {
    {.architecture = kName,
     .name = "tiny-test-qwen3moe",
     .layers = 2,
     .hidden = 96,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 32,
     .ffn = 200,
     .experts = 7,
     .experts_used = 3,
     .expert_ffn = 64,
     .vocab = 389,
     .context = 512,
     .rope_base = 1000000,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "qwen3-30b-a3b",
     .layers = 48,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .ffn = 6144,
     .experts = 128,
     .experts_used = 8,
     .expert_ffn = 768,
     .vocab = 151936,
     .context = 40960,
     .rope_base = 1000000,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "qwen3-moe-bench",  // qwen3-30b-a3b with an eighth of its layers and vocabulary
     .layers = 6,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .ffn = 6144,
     .experts = 128,
     .experts_used = 8,
     .expert_ffn = 768,
     .vocab = 18992,
     .context = 40960,
     .rope_base = 1000000,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
};

}  // namespace

constinit const Architecture kQwen3Moe = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &Read,
    .block = &DenseBlock,
    .tensors = kTensors,
    .merges = kSparseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
