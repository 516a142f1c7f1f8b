// Qwen 1.5 and 2 with experts, one of which all rows use.
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "qwen2moe";

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
    {"blk.{}.ffn_gate_inp_shexp.weight", WeightRole::kSharedRouter, Extent::kHidden},
    {"blk.{}.ffn_gate_shexp.weight", WeightRole::kSharedGate, Extent::kHidden, Extent::kSharedFfn},
    {"blk.{}.ffn_up_shexp.weight", WeightRole::kSharedUp, Extent::kHidden, Extent::kSharedFfn},
    {"blk.{}.ffn_down_shexp.weight", WeightRole::kSharedDown, Extent::kSharedFfn, Extent::kHidden},
};

void Read(Hyperparameters& from, ModelConfig& config) {
  ReadTransformer(from, config);
  ReadExperts(from, {.normalise = false, .shared = true}, config);
}

constexpr SynthShape kPresets[] = {
    {.architecture = kName,
     .name = "tiny-test-qwen2moe",
     .layers = 3,
     .hidden = 96,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 16,
     .ffn = 160,
     .experts = 6,
     .experts_used = 4,
     .expert_ffn = 32,
     .shared_ffn = 96,
     .vocab = 515,
     .context = 512,
     .rope_base = 10000,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
    {.architecture = kName,
     .name = "qwen1.5-moe-a2.7b",
     .layers = 24,
     .hidden = 2048,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 128,
     .ffn = 5632,
     .experts = 60,
     .experts_used = 4,
     .expert_ffn = 1408,
     .shared_ffn = 5632,
     .vocab = 151936,
     .context = 8192,
     .rope_base = 1000000,
     .tokens = SynthVocab::kQwen,
     .norm_epsilon = 1e-6f},
};

}  // namespace

constinit const Architecture kQwen2Moe = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &Read,
    .block = &DenseBlock,
    .tensors = kTensors,
    .merges = kSparseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
