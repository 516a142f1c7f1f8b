#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/gguf.h"
#include "tilewright/result.h"
#include "tilewright/types.h"

namespace tilewright {

/// The vocabulary of a synthetic model: made-up merges over printable ASCII, and the special tokens
/// of the model family in their usual places. Byte-level BPE, but for kSentencePiece.
enum class SynthVocab : std::uint8_t {
  /// Pre-tokenizer "smollm"; <|endoftext|>, <|im_start|> (bos), <|im_end|> (eos) first; no BOS
  /// added.
  kSmolLm,
  /// Pre-tokenizer "llama-bpe"; 256 special tokens last, the first of them <|begin_of_text|>; BOS
  /// added.
  kLlama3,
  /// Pre-tokenizer "gpt-2"; <unk>, <s>, </s> first; BOS added.
  kGpt2,
  /// SentencePiece: <unk>, <s>, </s> and the 256 byte tokens first, the characters last; BOS and a
  /// space in front added.
  kSentencePiece,
  /// The same with <|endoftext|> (eos) last, which Phi 3's vocabulary has added.
  kPhi3,
  /// Pre-tokenizer "qwen2"; <|endoftext|> (bos), <|im_start|>, <|im_end|> (eos) last; no BOS added.
  kQwen,
  /// Pre-tokenizer "gpt-4o"; the 21 special tokens of gpt-oss last, <|startoftext|> (bos) the first,
  /// <|return|> (eos) the fifth of them; no BOS added.
  kGptOss,
};

/// The shape of a model.
struct SynthShape {
  /// `general.architecture`; "": the first architecture that this version supports.
  std::string_view architecture;
  std::string_view name;  ///< the preset's name
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;  ///< even
  int ffn = 0;
  /// > 0: a sparse feed-forward of so many experts, `experts_used` of them for a row, of the width
  /// `expert_ffn` each, and of the width `shared_ffn` for one that all rows use. Only for
  /// architectures that have experts.
  int experts = 0;
  int experts_used = 0;
  int expert_ffn = 0;
  int shared_ffn = 0;
  int vocab = 0;
  int context = 0;
  float rope_base = 10000;
  float rope_factor = 0;  ///< > 0: Llama-3 frequency scaling, as a rope_freqs.weight tensor
  int rope_dims = 0;      ///< rotated elements of a head, even; 0: all
  /// > 0: long factors, as rope_factors_long.weight and rope_factors_short.weight, for contexts
  /// above it and up to it. At most `context`.
  int original_context = 0;
  /// > 0: YaRN by this factor instead of long factors, as metadata; needs original_context.
  float yarn_factor = 0;
  bool tied = false;  ///< the output projection is the embedding
  SynthVocab tokens = SynthVocab::kGpt2;
  float norm_epsilon = 1e-5f;
  /// > 0: positions that a row sees in all blocks but the last of each `window_period`, whose RoPE
  /// has its own base. Only for architectures that have such blocks.
  int window = 0;
  int window_period = 0;
  float windowed_rope_base = 0;                    ///< 0: rope_base
  float attention_softcap = 0, logit_softcap = 0;  ///< 0: what the architecture takes without a key
};

/// The presets of `synth --preset`: published models of each architecture (smollm2-135m,
/// llama-3.1-8b, qwen3-8b, phi-3.5-mini, ...), and for tests tiny-test, tiny-test-pieces (2 layers, 64
/// hidden; the latter with a SentencePiece vocabulary) and tiny-test-ARCHITECTURE.
std::span<const SynthShape> SynthPresets();
/// kNotFound for any other name; the message lists the presets.
Result<SynthShape> FindSynthPreset(std::string_view name);

struct SynthOptions {
  SynthShape shape;
  /// Type of the weight matrices, one of SynthTypes. As with llama.cpp's quantizer, norms are f32;
  /// with a type below 6 bits, the output projection (or the embedding, if tied) is q6_k; a matrix
  /// whose rows are not whole blocks of 256 becomes q8_0.
  DataType quant = DataType::kQ4_0;
  /// Empty, or one of SynthMixes: then matrices have the types that llama.cpp's quantizer gives
  /// them in a file of that kind, and `quant` is not used. Rows that are not whole blocks of 256
  /// become q5_0 (for q4_k), q5_1 (q5_k), q8_0 (q6_k) or iq4_nl.
  std::string mix{};
  std::uint64_t seed = 0;
};

/// The types that SynthOptions::quant accepts: "f32, f16, bf16, q4_0, ...".
std::string SynthTypes();
/// The mixes that SynthOptions::mix accepts: "q2_k, q3_k_m, q4_k_m, ...".
std::string SynthMixes();
/// Sets `mix` or else `quant` by name, in any case; where a mix is called as its main type (q2_k), the mix.
/// kInvalidArgument for any other name; the message lists both.
Status SetSynthQuant(std::string_view name, SynthOptions& options);

struct SynthReport {
  std::uint64_t file_bytes = 0;
  std::uint64_t parameters = 0;
  /// How many matrices have which type, most frequent first: "q4_0: 210, q8_0: 1".
  std::string types;
  /// Empty, or one line saying which matrices got a type other than the requested one, and why.
  std::string note;
};

/// What WriteSynthetic would write; writes nothing. kInvalidArgument for an impossible shape or
/// type, naming the field; kUnsupported for an unknown architecture.
Result<SynthReport> PlanSynthetic(const SynthOptions& options);

/// Called after each piece; returning false stops the writing (kCancelled).
using SynthProgress = std::function<bool(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

/// Writes a GGUF model with random weights that llama.cpp and Tilewright can load and run. The
/// values of a matrix with rows of K values are about N(0, 1 / K), so activations stay finite at
/// any depth; the text such a model generates is noise. The same options give the same bytes.
/// Streams: holds the vocabulary and about 2 MiB a thread in memory, never the model. Makes 0.3
/// (f16) to 0.9 GB/s a thread, on min(DefaultThreads(), 8) threads of its own that end with the
/// call; `progress` is called by the caller's thread. Errors as PlanSynthetic and
/// GgufWriter::Write; no partial file is left behind.
Result<SynthReport> WriteSynthetic(const SynthOptions& options, const std::string& path,
                                   const SynthProgress& progress = nullptr);

/// The same model without a file: the tensors are made when they are fetched (GgufFile::Fetch), with
/// the bytes that a file would have. Its threads sleep in between, and end with the last copy of the
/// file. Errors as PlanSynthetic.
Result<GgufFile> GenerateSynthetic(const SynthOptions& options);

}  // namespace tilewright
