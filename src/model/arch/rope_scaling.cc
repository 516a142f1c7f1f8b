#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/text.h"
#include "model/arch/hyperparameters.h"

namespace tilewright {
namespace {

void ReadLlama3(Hyperparameters& from, float factor, RopeParams& rope) {
  rope.scaling_factor = factor;
  if (!(factor > 0)) {
    from.Refuse(ErrorCode::kCorrupt, "rope.scaling.factor",
                Format(" = {}, must be positive for scaling llama3", factor));
  }
  rope.low_freq_factor = from.Float("rope.scaling.low_freq_factor", 1.0f);
  rope.high_freq_factor = from.Float("rope.scaling.high_freq_factor", 4.0f);
  rope.original_context = from.Count("rope.scaling.original_context_length", 8192);
  if (!(rope.high_freq_factor > rope.low_freq_factor) || !(rope.low_freq_factor > 0)) {
    from.Refuse(ErrorCode::kCorrupt, "rope.scaling",
                Format(": low_freq_factor = {} must be positive and below high_freq_factor = {}",
                       rope.low_freq_factor, rope.high_freq_factor));
  }
}

/// Pairs that turn less than `slow` times in the original context are scaled by `factor`, those that
/// turn more than `fast` times not at all, in between it goes by the number of the pair ("YaRN:
/// Efficient Context Window Extension of Large Language Models", section 3.2; whole pairs at both
/// ends, as in the authors' code).
std::vector<float> YarnFactors(const ModelConfig& config, double factor, double fast, double slow) {
  const RopeParams& rope = config.rope;
  const auto pair_of = [&](double turns) {
    return rope.dims * std::log(config.original_context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(static_cast<double>(rope.base)));
  };
  const double first = std::max(0.0, std::floor(pair_of(fast)));
  const double last = std::min(rope.dims - 1.0, std::ceil(pair_of(slow)));
  std::vector<float> factors;
  for (int i = 0; i < rope.dims / 2; ++i) {
    const double scaled = std::clamp((i - first) / std::max(0.001, last - first), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / (scaled / factor + 1 - scaled)));
  }
  return factors;
}

/// The magnitude is sqrt(1 / t) of the paper, about 0.1 ln(factor) + 1. Some files have a multiplier
/// of the logarithm too, whose magnitude is taken away again.
void ReadYarn(Hyperparameters& from, float factor, ModelConfig& config) {
  const float fast = from.Float("rope.scaling.yarn_beta_fast", 32.0f);
  const float slow = from.Float("rope.scaling.yarn_beta_slow", 1.0f);
  const float multiplier = from.Float("rope.scaling.yarn_log_multiplier", 0.0f);
  if (!(factor > 0)) {
    return from.Refuse(ErrorCode::kCorrupt, "rope.scaling.factor",
                       Format(" = {}, must be positive for scaling yarn", factor));
  }
  if (!(slow > 0) || !(fast >= slow)) {
    return from.Refuse(
        ErrorCode::kCorrupt, "rope.scaling.yarn_beta_slow",
        Format(" = {}, must be positive and at most yarn_beta_fast = {}", slow, fast));
  }
  if (!(config.rope.base > 1)) {
    return from.Refuse(ErrorCode::kCorrupt, "rope.freq_base",
                       Format(" = {}, must be above 1 for scaling yarn", config.rope.base));
  }
  config.rope_factors = YarnFactors(config, static_cast<double>(factor), static_cast<double>(fast),
                                    static_cast<double>(slow));
  if (factor <= 1) return;
  const float logarithm = std::log(factor);
  config.rope_magnitude = (1 + 0.1f * logarithm) / (1 + 0.1f * multiplier * logarithm);
}

}  // namespace

void ReadRopeScaling(Hyperparameters& from, ModelConfig& config) {
  RopeParams& rope = config.rope;
  const std::string scaling = from.Text("rope.scaling.type");
  const float factor = from.Float("rope.scaling.factor", from.Float("rope.scale_linear", 0.0f));
  config.original_context =
      from.Count("rope.scaling.original_context_length", std::max(1, config.context));
  const bool linear = scaling.empty() || scaling == "linear";
  if (scaling == "llama3") {
    ReadLlama3(from, factor, rope);
  } else if (scaling == "yarn") {
    ReadYarn(from, factor, config);
  } else if (linear || scaling == "longrope") {
    if (factor > 0) rope.freq_scale = 1.0f / factor;
  } else if (scaling != "none") {
    from.Refuse(ErrorCode::kUnsupported, "rope.scaling.type",
                Format(" is '{}', which is not supported; convert the model with none, linear, "
                       "llama3, yarn or longrope",
                       Printable(scaling)));
  }
  config.rope_magnitude *= from.Float("rope.scaling.attn_factor", 1.0f);
  if (!(config.rope_magnitude > 0) || !std::isfinite(config.rope_magnitude)) {
    from.Refuse(ErrorCode::kCorrupt, "rope.scaling.attn_factor",
                Format(": cosines and sines would be multiplied by {}, must be positive",
                       config.rope_magnitude));
  }
}

}  // namespace tilewright
