// ERNIE 4.5, dense.
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "ernie4_5";

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
     .name = "tiny-test-ernie4_5",
     .layers = 3,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .ffn = 160,
     .vocab = 1031,
     .context = 512,
     .rope_base = 500000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece},
    {.architecture = kName,
     .name = "ernie-4.5-0.3b",
     .layers = 18,
     .hidden = 1024,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 128,
     .ffn = 3072,
     .vocab = 103424,
     .context = 131072,
     .rope_base = 500000,
     .tied = true,
     .tokens = SynthVocab::kSentencePiece},
};

}  // namespace

constinit const Architecture kErnie45 = {
    .name = kName,
    .rope = RopeMode::kInterleaved,
    .read = &ReadDense,
    .block = &DenseBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
