#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tilewright/model.h"

namespace tilewright {
namespace {

/// Collects the first error, so that the reading code stays a list of fields.
class Reader {
 public:
  Reader(const GgufFile& file, std::string arch) : file_(file), prefix_(std::move(arch) + ".") {}

  std::int32_t Count(const char* key) { return Positive(file_.U32(prefix_ + key), key); }
  std::int32_t Count(const char* key, std::int32_t absent) {
    return file_.Has(prefix_ + key) ? Count(key) : absent;
  }
  float Float(const char* key, std::optional<float> absent = std::nullopt) {
    Result<float> value = absent ? file_.F32(prefix_ + key, *absent) : file_.F32(prefix_ + key);
    if (!value) return Keep(value.error()), absent.value_or(1.0f);
    if (!std::isfinite(*value))
      Keep(Error{ErrorCode::kCorrupt,
                 fmt::format("{}{} = {}, must be finite", prefix_, key, *value)});
    return *value;
  }
  std::string Text(const char* key) {
    Result<std::string_view> value = file_.String(prefix_ + key, "");
    if (!value) return Keep(value.error()), "";
    return std::string(*value);
  }
  void Keep(Error error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::int32_t Positive(Result<std::uint32_t> value, const char* key) {
    constexpr std::uint32_t kLimit = 1u << 24;
    if (!value) return Keep(value.error()), 1;
    if (*value == 0 || *value > kLimit) {
      Keep(Error{ErrorCode::kCorrupt,
                 fmt::format("{}{} = {}, must be 1 to {}", prefix_, key, *value, kLimit)});
      return 1;
    }
    return static_cast<std::int32_t>(*value);
  }

  const GgufFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

void ReadRope(Reader& reader, ModelConfig& config) {
  RopeParams& rope = config.rope;
  rope.mode = RopeMode::kInterleaved;
  rope.dims = reader.Count("rope.dimension_count", config.head_dim);
  rope.base = reader.Float("rope.freq_base", 10000.0f);
  if (!(rope.base > 0))
    reader.Keep({ErrorCode::kCorrupt,
                 fmt::format("llama.rope.freq_base = {}, must be positive", rope.base)});
  if (rope.dims % 2 != 0 || rope.dims > config.head_dim) {
    reader.Keep(
        {ErrorCode::kCorrupt,
         fmt::format("llama.rope.dimension_count = {}, must be even and at most head_dim = {}",
                     rope.dims, config.head_dim)});
  }
  const std::string scaling = reader.Text("rope.scaling.type");
  const float factor = reader.Float("rope.scaling.factor", reader.Float("rope.scale_linear", 0.0f));
  if (scaling.empty() || scaling == "none") {
    // Llama-3 files carry their scaling as the tensor rope_freqs.weight; old files a linear factor
    // without a type.
    if (scaling.empty() && factor > 0) rope.freq_scale = 1.0f / factor;
  } else if (scaling == "linear") {
    if (factor > 0) rope.freq_scale = 1.0f / factor;
  } else if (scaling == "llama3") {
    rope.scaling_factor = factor;
    if (!(factor > 0)) {
      reader.Keep(
          {ErrorCode::kCorrupt,
           fmt::format("llama.rope.scaling.factor = {}, must be positive for scaling llama3",
                       factor)});
    }
    rope.low_freq_factor = reader.Float("rope.scaling.low_freq_factor", 1.0f);
    rope.high_freq_factor = reader.Float("rope.scaling.high_freq_factor", 4.0f);
    rope.original_context = reader.Count("rope.scaling.original_context_length", 8192);
    if (!(rope.high_freq_factor > rope.low_freq_factor) || !(rope.low_freq_factor > 0)) {
      reader.Keep(
          {ErrorCode::kCorrupt,
           fmt::format("llama.rope.scaling: low_freq_factor = {} must be positive and below "
                       "high_freq_factor = {}",
                       rope.low_freq_factor, rope.high_freq_factor)});
    }
  } else {
    reader.Keep(
        {ErrorCode::kUnsupported,
         fmt::format("llama.rope.scaling.type is '{}'; supported are none, linear and llama3",
                     scaling)});
  }
}

}  // namespace

Result<ModelConfig> ReadModelConfig(const GgufFile& file) {
  ModelConfig config;
  Result<std::string_view> architecture = file.String("general.architecture");
  if (!architecture) return Fail(architecture.error());
  config.architecture = std::string(*architecture);
  if (config.architecture != "llama") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("architecture '{}' is not supported; this version runs: llama",
                            config.architecture));
  }
  if (Result<std::string_view> name = file.String("general.name", ""); name)
    config.name = std::string(*name);

  Reader reader(file, config.architecture);
  config.layers = reader.Count("block_count");
  // Each layer has tensors of its own: a larger count is refused before anything is made for it.
  if (static_cast<std::size_t>(config.layers) > file.tensors().size()) {
    reader.Keep(
        {ErrorCode::kCorrupt, fmt::format("llama.block_count = {}, but the file has {} tensors",
                                          config.layers, file.tensors().size())});
  }
  config.hidden = reader.Count("embedding_length");
  config.ffn = reader.Count("feed_forward_length");
  config.heads = reader.Count("attention.head_count");
  config.kv_heads = reader.Count("attention.head_count_kv", config.heads);
  config.context = reader.Count("context_length");
  config.epsilon = reader.Float("attention.layer_norm_rms_epsilon");
  if (file.Has("llama.expert_count") && file.U32("llama.expert_count", 0).value_or(2) > 1) {
    reader.Keep(
        {ErrorCode::kUnsupported, "llama.expert_count > 1: mixtures of experts are not supported"});
  }
  if (config.hidden % config.heads != 0 && !file.Has("llama.attention.key_length")) {
    reader.Keep(
        {ErrorCode::kCorrupt,
         fmt::format(
             "llama.embedding_length = {} is no multiple of llama.attention.head_count = {}",
             config.hidden, config.heads)});
  }
  config.head_dim = reader.Count("attention.key_length", std::max(1, config.hidden / config.heads));
  if (reader.Count("attention.value_length", config.head_dim) != config.head_dim) {
    reader.Keep({ErrorCode::kUnsupported, "llama.attention.value_length differs from key_length"});
  }
  if (config.heads % config.kv_heads != 0) {
    reader.Keep({ErrorCode::kCorrupt,
                 fmt::format("llama.attention.head_count = {} is no multiple of head_count_kv = {}",
                             config.heads, config.kv_heads)});
  }
  if (!(config.epsilon >= 0)) {
    reader.Keep(
        {ErrorCode::kCorrupt,
         fmt::format("llama.attention.layer_norm_rms_epsilon = {}, must be >= 0", config.epsilon)});
  }
  ReadRope(reader, config);
  if (reader.error()) return Fail(*reader.error());

  Result<const GgufTensor*> embedding = file.Tensor("token_embd.weight");
  if (!embedding) return Fail(embedding.error());
  const std::int64_t vocab = (*embedding)->shape[1];
  if (vocab > (1 << 24)) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("tensor token_embd.weight has {} rows, at most {}", vocab, 1 << 24));
  }
  config.vocab = static_cast<std::int32_t>(vocab);
  config.tied = file.FindTensor("output.weight") == nullptr;
  return config;
}

}  // namespace tilewright
