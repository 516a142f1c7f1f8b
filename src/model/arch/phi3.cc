// Phi 3, 3.5 and 4 (mini).
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/arch/list.h"

namespace tilewright {
namespace {

constexpr std::string_view kName = "phi3";

constexpr TensorPart kQkvRows[] = {{WeightRole::kQ, Extent::kQueries},
                                   {WeightRole::kK, Extent::kKeys},
                                   {WeightRole::kV, Extent::kKeys}};
constexpr TensorPart kGateUpRows[] = {{WeightRole::kGate, Extent::kFfn},
                                      {WeightRole::kUp, Extent::kFfn}};

constexpr TensorRule kTensors[] = {
    {"token_embd.weight", WeightRole::kEmbedding, Extent::kHidden, Extent::kVocab},
    {"output.weight", WeightRole::kOutput, Extent::kHidden, Extent::kVocab, Presence::kTied},
    {"output_norm.weight", WeightRole::kOutputNorm, Extent::kHidden},
    {.name = "rope_factors_long.weight",
     .role = WeightRole::kRopeFactorsLong,
     .k = Extent::kRopePairs,
     .presence = Presence::kOptional},
    {.name = "rope_factors_short.weight",
     .role = WeightRole::kRopeFactorsShort,
     .k = Extent::kRopePairs,
     .presence = Presence::kOptional},
    {"blk.{}.attn_norm.weight", WeightRole::kAttnNorm, Extent::kHidden},
    {.name = "blk.{}.attn_qkv.weight",
     .role = WeightRole::kQ,
     .k = Extent::kHidden,
     .parts = kQkvRows},
    {"blk.{}.attn_output.weight", WeightRole::kAttnOutput, Extent::kQueries, Extent::kHidden},
    {"blk.{}.ffn_norm.weight", WeightRole::kFfnNorm, Extent::kHidden},
    {.name = "blk.{}.ffn_up.weight",
     .role = WeightRole::kGate,
     .k = Extent::kHidden,
     .parts = kGateUpRows},
    {"blk.{}.ffn_down.weight", WeightRole::kDown, Extent::kFfn, Extent::kHidden},
};

constexpr SynthShape kPresets[] = {
    {.architecture = kName,
     .name = "tiny-test-phi3",
     .layers = 4,
     .hidden = 72,
     .heads = 3,
     .kv_heads = 3,
     .head_dim = 24,
     .ffn = 100,
     .vocab = 407,
     .context = 512,
     .rope_base = 10000,
     .original_context = 64,
     .tokens = SynthVocab::kPhi3},
    // Rotates three quarters of each head, as Phi 4 does.
    {.architecture = kName,
     .name = "tiny-test-phi3-partial",
     .layers = 2,
     .hidden = 128,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .ffn = 256,
     .vocab = 401,
     .context = 1024,
     .rope_base = 10000,
     .rope_dims = 24,
     .original_context = 256,
     .tied = true,
     .tokens = SynthVocab::kPhi3},
    {.architecture = kName,
     .name = "phi-3.5-mini",
     .layers = 32,
     .hidden = 3072,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 96,
     .ffn = 8192,
     .vocab = 32064,
     .context = 131072,
     .rope_base = 10000,
     .original_context = 4096,
     .tokens = SynthVocab::kPhi3},
};

}  // namespace

// attention.sliding_window is not read: files have it for models that were trained without one too,
// and llama.cpp attends to all positions as well.
constinit const Architecture kPhi3 = {
    .name = kName,
    .rope = RopeMode::kHalfSplit,
    .read = &ReadDense,
    .block = &DenseBlock,
    .tensors = kTensors,
    .merges = kDenseMerges,
    .presets = kPresets,
};

}  // namespace tilewright
