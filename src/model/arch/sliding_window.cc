#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "model/arch/hyperparameters.h"

namespace tilewright {
namespace {

constexpr std::string_view kPattern = "attention.sliding_window_pattern";

/// Which blocks have a window: by a period or, block by block, by bools.
std::vector<bool> ReadPattern(Hyperparameters& from, std::int32_t layers, std::int32_t period) {
  std::vector<bool> windowed(static_cast<std::size_t>(layers));
  const GgufValue* value = from.file().Find(from.Key(kPattern));
  if (value == nullptr || value->type() != GgufType::kArray) {
    period = from.Count(kPattern, period);
    for (std::int32_t i = 0; i < layers; ++i)
      windowed[static_cast<std::size_t>(i)] = i % period < period - 1;
    return windowed;
  }
  const std::vector<GgufValue> elements = value->Elements();
  if (elements.size() != windowed.size() || value->element_type() != GgufType::kBool) {
    from.Refuse(ErrorCode::kCorrupt, kPattern,
                Format(" is {} with {} elements, must be a number or a bool for each of {} blocks",
                       value->TypeText(), elements.size(), layers));
    return windowed;
  }
  for (std::size_t i = 0; i < elements.size(); ++i)
    windowed[i] = elements[i].Bool().value_or(false);
  return windowed;
}

}  // namespace

void ReadSlidingWindow(Hyperparameters& from, const WindowDefaults& absent, ModelConfig& config) {
  constexpr std::string_view kWindow = "attention.sliding_window", kBase = "rope.freq_base_swa";
  if (from.error() || (absent.window == 0 && !from.Has(kWindow))) return;
  config.window = from.Count(kWindow, absent.window);
  config.windowed = ReadPattern(from, config.layers, absent.period);
  RopeParams& rope = config.windowed_rope;
  rope = config.rope;
  rope.base = from.Float(kBase, absent.rope_base > 0 ? absent.rope_base : rope.base);
  if (!(rope.base > 0))
    from.Refuse(ErrorCode::kCorrupt, kBase, Format(" = {}, must be positive", rope.base));
  if (!absent.scaled) {
    rope.freq_scale = 1;
    rope.scaling_factor = 0;
  }
  // The factors of YaRN follow from the base, and one tensor of them serves all blocks.
  if (!config.rope_factors.empty() && rope != config.rope) {
    from.Refuse(ErrorCode::kUnsupported, "rope.scaling.type",
                " is 'yarn', which is not supported where blocks with a window rotate otherwise");
  }
}

float ReadSoftcap(Hyperparameters& from, std::string_view key, float absent) {
  const float softcap = from.Float(key, absent);
  if (!(softcap >= 0))
    from.Refuse(ErrorCode::kCorrupt, key, Format(" = {}, must be 0 or positive", softcap));
  return softcap;
}

}  // namespace tilewright
