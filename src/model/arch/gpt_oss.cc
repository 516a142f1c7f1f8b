// gpt-oss 20B and 120B.
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "gpt-oss";

constexpr TensorRule kTensors[] = {
    {"token_embd.weight", WeightRole::kEmbedding, Extent::kHidden, Extent::kVocab},
    {"output.weight", WeightRole::kOutput, Extent::kHidden, Extent::kVocab},
    {"output_norm.weight", WeightRole::kOutputNorm, Extent::kHidden},
    {"blk.{}.attn_norm.weight", WeightRole::kAttnNorm, Extent::kHidden},
    {"blk.{}.attn_q.weight", WeightRole::kQ, Extent::kHidden, Extent::kQueries},
    {"blk.{}.attn_q.bias", WeightRole::kQBias, Extent::kQueries},
    {"blk.{}.attn_k.weight", WeightRole::kK, Extent::kHidden, Extent::kKeys},
    {"blk.{}.attn_k.bias", WeightRole::kKBias, Extent::kKeys},
    {"blk.{}.attn_v.weight", WeightRole::kV, Extent::kHidden, Extent::kKeys},
    {"blk.{}.attn_v.bias", WeightRole::kVBias, Extent::kKeys},
    {"blk.{}.attn_sinks.weight", WeightRole::kAttnSinks, Extent::kHeads},
    {"blk.{}.attn_output.weight", WeightRole::kAttnOutput, Extent::kQueries, Extent::kHidden},
    {"blk.{}.attn_output.bias", WeightRole::kAttnOutputBias, Extent::kHidden},
    {"blk.{}.post_attention_norm.weight", WeightRole::kFfnNorm, Extent::kHidden},
    {"blk.{}.ffn_gate_inp.weight", WeightRole::kRouter, Extent::kHidden, Extent::kExperts},
    {"blk.{}.ffn_gate_inp.bias", WeightRole::kRouterBias, Extent::kExperts},
    {.name = "blk.{}.ffn_gate_exps.weight",
     .role = WeightRole::kExpertGate,
     .k = Extent::kHidden,
     .n = Extent::kExpertFfn,
     .matrices = Extent::kExperts},
    {.name = "blk.{}.ffn_gate_exps.bias",
     .role = WeightRole::kExpertGateBias,
     .k = Extent::kExpertFfn,
     .n = Extent::kExperts,
     .table = true},
    {.name = "blk.{}.ffn_up_exps.weight",
     .role = WeightRole::kExpertUp,
     .k = Extent::kHidden,
     .n = Extent::kExpertFfn,
     .matrices = Extent::kExperts},
    {.name = "blk.{}.ffn_up_exps.bias",
     .role = WeightRole::kExpertUpBias,
     .k = Extent::kExpertFfn,
     .n = Extent::kExperts,
     .table = true},
    {.name = "blk.{}.ffn_down_exps.weight",
     .role = WeightRole::kExpertDown,
     .k = Extent::kExpertFfn,
     .n = Extent::kHidden,
     .matrices = Extent::kExperts},
    {.name = "blk.{}.ffn_down_exps.bias",
     .role = WeightRole::kExpertDownBias,
     .k = Extent::kHidden,
     .n = Extent::kExperts,
     .table = true},
};

// Gate and up have biases of their own, which are added before anything joins the two.
constexpr MergeRule kMerges[] = {kDenseMerges[0]};

constexpr SynthShape kPresets[] = {
    {.architecture = kName,
     .name = "tiny-test-gpt-oss",
     .layers = 3,
     .hidden = 96,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 32,
     .ffn = 64,
     .experts = 6,
     .experts_used = 3,
     .expert_ffn = 64,
     .vocab = 401,
     .context = 512,
     .rope_base = 150000,
     .original_context = 32,
     .yarn_factor = 16,
     .tokens = SynthVocab::kGptOss,
     .window = 16,
     .window_period = 2},
    {.architecture = kName,
     .name = "gpt-oss-20b",
     .layers = 24,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .ffn = 2880,
     .experts = 32,
     .experts_used = 4,
     .expert_ffn = 2880,
     .vocab = 201088,
     .context = 131072,
     .rope_base = 150000,
     .original_context = 4096,
     .yarn_factor = 32,
     .tokens = SynthVocab::kGptOss,
     .window = 128,
     .window_period = 2},
    {.architecture = kName,
     .name = "gpt-oss-120b",
     .layers = 36,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .ffn = 2880,
     .experts = 128,
     .experts_used = 4,
     .expert_ffn = 2880,
     .vocab = 201088,
     .context = 131072,
     .rope_base = 150000,
     .original_context = 4096,
     .yarn_factor = 32,
     .tokens = SynthVocab::kGptOss,
     .window = 128,
     .window_period = 2},
};

void Read(Hyperparameters& from, ModelConfig& config) {
  ReadTransformer(from, config);
  ReadSlidingWindow(from, {.window = 128, .period = 2, .scaled = true}, config);
  ReadExperts(from, {}, config);
}

/// No key says where gate and up are clamped.
BlockSpec Block(const ModelConfig& config, std::int32_t index) {
  BlockSpec block = DenseBlock(config, index);
  block.activation = Activation::kClampedSwiGlu;
  block.gate_limit = 7;
  return block;
}

}  // namespace

constinit const Architecture kGptOss = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &Read,
    .block = &Block,
    .tensors = kTensors,
    .merges = kMerges,
    .presets = kPresets,
};

}  // namespace tilewright
