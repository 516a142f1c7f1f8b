// InternLM 2 and 2.5.
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "internlm2";

constexpr TensorRule kTensors[] = {
    {"token_embd.weight", WeightRole::kEmbedding, Extent::kHidden, Extent::kVocab},
    {"output.weight", WeightRole::kOutput, Extent::kHidden, Extent::kVocab},
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
     .name = "tiny-test-internlm2",
     .layers = 2,
     .hidden = 96,
     .heads = 6,
     .kv_heads = 3,
     .head_dim = 16,
     .ffn = 224,
     .vocab = 1019,
     .context = 512,
     .rope_base = 1000000,
     .tokens = SynthVocab::kSentencePiece},
    {.architecture = kName,
     .name = "internlm2-1.8b",
     .layers = 24,
     .hidden = 2048,
     .heads = 16,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 8192,
     .vocab = 92544,
     .context = 32768,
     .rope_base = 1000000,
     .tokens = SynthVocab::kSentencePiece},
    {.architecture = kName,
     .name = "internlm2-7b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 92544,
     .context = 32768,
     .rope_base = 1000000,
     .tokens = SynthVocab::kSentencePiece},
};

}  // namespace

constinit const Architecture kInternLm2 = {
    .name = kName,
    .rope = RopeMode::kInterleaved,  // files have q and k permuted for it
    .read = &ReadDense,
    .block = &DenseBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
