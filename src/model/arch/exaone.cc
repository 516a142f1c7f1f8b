// EXAONE 3.0, 3.5 and Deep.
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "exaone";

constexpr TensorRule kTensors[] = {
    {"token_embd.weight", WeightRole::kEmbedding, Extent::kHidden, Extent::kVocab},
    {"output.weight", WeightRole::kOutput, Extent::kHidden, Extent::kVocab, Presence::kTied},
    {"output_norm.weight", WeightRole::kOutputNorm, Extent::kHidden},
    {.name = "rope_freqs.weight",
     .role = WeightRole::kRopeFactors,
     .k = Extent::kRopePairs,
     .presence = Presence::kOptional},
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
     .name = "tiny-test-exaone",
     .layers = 3,
     .hidden = 96,
     .heads = 6,
     .kv_heads = 1,
     .head_dim = 16,
     .ffn = 160,
     .vocab = 521,
     .context = 512,
     .rope_base = 1000000,
     .rope_factor = 8,
     .tokens = SynthVocab::kSmolLm},
    {.architecture = kName,
     .name = "exaone-3.5-2.4b",
     .layers = 30,
     .hidden = 2560,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 80,
     .ffn = 7168,
     .vocab = 102400,
     .context = 32768,
     .rope_base = 1000000,
     .rope_factor = 8,
     .tied = true,
     .tokens = SynthVocab::kSmolLm},
    {.architecture = kName,
     .name = "exaone-3.5-7.8b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 102400,
     .context = 32768,
     .rope_base = 1000000,
     .rope_factor = 8,
     .tokens = SynthVocab::kSmolLm},
};

}  // namespace

constinit const Architecture kExaone = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &ReadDense,
    .block = &DenseBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
