#include "model/arch/hyperparameters.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::uint32_t kMaxCount = 1u << 24;

void ReadRope(Hyperparameters& from, ModelConfig& config) {
  RopeParams& rope = config.rope;
  rope.dims = from.Count("rope.dimension_count", config.head_dim);
  rope.base = from.Float("rope.freq_base", 10000.0f);
  if (!(rope.base > 0)) {
    from.Refuse(ErrorCode::kCorrupt, "rope.freq_base",
                Format(" = {}, must be positive", rope.base));
  }
  if (rope.dims % 2 != 0 || rope.dims > config.head_dim) {
    from.Refuse(
        ErrorCode::kCorrupt, "rope.dimension_count",
        Format(" = {}, must be even and at most head_dim = {}", rope.dims, config.head_dim));
  }
  ReadRopeScaling(from, config);
}

void ReadHeads(Hyperparameters& from, ModelConfig& config) {
  config.heads = from.Count("attention.head_count");
  config.kv_heads = from.Count("attention.head_count_kv", config.heads);
  if (config.hidden % config.heads != 0 && !from.Has("attention.key_length")) {
    from.Refuse(ErrorCode::kCorrupt, "embedding_length",
                Format(" = {} is not a multiple of {} = {}", config.hidden,
                       from.Key("attention.head_count"), config.heads));
  }
  config.head_dim = from.Count("attention.key_length", std::max(1, config.hidden / config.heads));
  if (from.Count("attention.value_length", config.head_dim) != config.head_dim) {
    from.Refuse(ErrorCode::kUnsupported, "attention.value_length", " differs from key_length");
  }
  if (config.heads % config.kv_heads != 0) {
    from.Refuse(
        ErrorCode::kCorrupt, "attention.head_count",
        Format(" = {} is not a multiple of head_count_kv = {}", config.heads, config.kv_heads));
  }
}

}  // namespace

std::int32_t Hyperparameters::Count(std::string_view key) {
  Result<std::uint32_t> value = file_.U32(Key(key));
  if (!value) return Keep(value.error()), 1;
  if (*value == 0 || *value > kMaxCount) {
    Refuse(ErrorCode::kCorrupt, key, Format(" = {}, must be 1 to {}", *value, kMaxCount));
    return 1;
  }
  return static_cast<std::int32_t>(*value);
}

std::int32_t Hyperparameters::Count(std::string_view key, std::int32_t absent) {
  return Has(key) ? Count(key) : absent;
}

float Hyperparameters::Float(std::string_view key, std::optional<float> absent) {
  Result<float> value = absent ? file_.F32(Key(key), *absent) : file_.F32(Key(key));
  if (!value) return Keep(value.error()), absent.value_or(1.0f);
  if (!std::isfinite(*value))
    Refuse(ErrorCode::kCorrupt, key, Format(" = {}, must be finite", *value));
  return *value;
}

std::string Hyperparameters::Text(std::string_view key) {
  Result<std::string_view> value = file_.String(Key(key), "");
  if (!value) return Keep(value.error()), "";
  return std::string(*value);
}

void Hyperparameters::Refuse(ErrorCode code, std::string_view key, std::string_view what) {
  Keep({code, Key(key) + std::string(what)});
}

void Hyperparameters::Keep(Error error) {
  if (!error_) error_ = std::move(error);
}

void ReadTransformer(Hyperparameters& from, ModelConfig& config) {
  config.layers = from.Count("block_count");
  // Each block has tensors, so a larger count is rejected before anything is allocated for it.
  const std::size_t tensors = from.file().tensors().size();
  if (static_cast<std::size_t>(config.layers) > tensors) {
    from.Refuse(ErrorCode::kCorrupt, "block_count",
                Format(" = {}, but the file has {} tensors", config.layers, tensors));
  }
  config.hidden = from.Count("embedding_length");
  config.ffn = from.Count("feed_forward_length");
  config.context = from.Count("context_length");
  config.epsilon = from.Float("attention.layer_norm_rms_epsilon");
  if (!(config.epsilon >= 0)) {
    from.Refuse(ErrorCode::kCorrupt, "attention.layer_norm_rms_epsilon",
                Format(" = {}, must be >= 0", config.epsilon));
  }
  ReadHeads(from, config);
  ReadRope(from, config);
}

void ReadExperts(Hyperparameters& from, const ExpertDefaults& absent, ModelConfig& config) {
  constexpr std::int32_t kMostExperts = 1024;
  const Result<std::uint32_t> count = from.file().U32(from.Key("expert_count"), 0);
  if (!count) return from.Keep(count.error());
  if (*count < 2) {
    if (absent.required) {
      from.Refuse(ErrorCode::kCorrupt, "expert_count",
                  Format(" = {}, must be 2 to {}", *count, kMostExperts));
    }
    return;
  }
  if (*count > static_cast<std::uint32_t>(kMostExperts)) {
    return from.Refuse(ErrorCode::kCorrupt, "expert_count",
                       Format(" = {}, must be 2 to {}", *count, kMostExperts));
  }
  config.experts = static_cast<std::int32_t>(*count);
  config.experts_used = from.Count("expert_used_count");
  if (config.experts_used > config.experts) {
    from.Refuse(
        ErrorCode::kCorrupt, "expert_used_count",
        Format(" = {}, must be at most expert_count = {}", config.experts_used, config.experts));
  }
  // As llama.cpp reads files that do not say it.
  const std::int32_t of_all = absent.required ? config.ffn / config.experts_used : config.ffn;
  config.expert_ffn = from.Count("expert_feed_forward_length", std::max(1, of_all));
  if (absent.shared)
    config.shared_ffn = from.Count("expert_shared_feed_forward_length", config.ffn);
  config.normalise_experts = absent.normalise;
}

void RefuseExperts(Hyperparameters& from) {
  if (from.Has("expert_count") && from.file().U32(from.Key("expert_count"), 0).value_or(2) > 1) {
    from.Refuse(ErrorCode::kUnsupported, "expert_count",
                " > 1: mixtures of experts are not supported");
  }
}

void WriteTransformer(const ModelConfig& config, GgufWriter& writer) {
  const auto key = [&config](std::string_view name) {
    return Format("{}.{}", config.architecture, name);
  };
  const auto count = [&](std::string_view name, std::int32_t value) {
    writer.SetU32(key(name), static_cast<std::uint32_t>(value));
  };
  count("block_count", config.layers);
  count("context_length", config.context);
  count("embedding_length", config.hidden);
  count("feed_forward_length", config.ffn);
  if (config.experts > 0) {
    count("expert_count", config.experts);
    count("expert_used_count", config.experts_used);
    count("expert_feed_forward_length", config.expert_ffn);
    if (config.shared_ffn > 0) count("expert_shared_feed_forward_length", config.shared_ffn);
  }
  count("attention.head_count", config.heads);
  count("attention.head_count_kv", config.kv_heads);
  if (std::int64_t{config.heads} * config.head_dim != config.hidden) {
    count("attention.key_length", config.head_dim);
    count("attention.value_length", config.head_dim);
  }
  writer.SetF32(key("attention.layer_norm_rms_epsilon"), config.epsilon);
  count("rope.dimension_count", config.rope.dims);
  writer.SetF32(key("rope.freq_base"), config.rope.base);
  count("vocab_size", config.vocab);
  if (config.attention_softcap > 0)
    writer.SetF32(key("attn_logit_softcapping"), config.attention_softcap);
  if (config.logit_softcap > 0) writer.SetF32(key("final_logit_softcapping"), config.logit_softcap);
  if (config.window > 0) {
    count("attention.sliding_window", config.window);
    const auto full = std::find(config.windowed.begin(), config.windowed.end(), false);
    count("attention.sliding_window_pattern",
          static_cast<std::int32_t>(full - config.windowed.begin()) + 1);
    writer.SetF32(key("rope.freq_base_swa"), config.windowed_rope.base);
  }
  if (config.original_context == config.context) return;
  count("rope.scaling.original_context_length", config.original_context);
  writer.SetF32(key("rope.scaling.attn_factor"), config.rope_magnitude);
}

void ReadDense(Hyperparameters& from, ModelConfig& config) {
  ReadTransformer(from, config);
  RefuseExperts(from);
}

}  // namespace tilewright
