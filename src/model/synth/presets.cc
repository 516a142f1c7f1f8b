#include "core/text.h"
#include "model/arch/architecture.h"
#include "tilewright/synth.h"

namespace tilewright {

std::span<const SynthShape> SynthPresets() {
  static const std::vector<SynthShape> all = [] {
    std::vector<SynthShape> shapes;
    for (const Architecture* architecture : Architectures()) {
      shapes.insert(shapes.end(), architecture->presets.begin(), architecture->presets.end());
    }
    return shapes;
  }();
  return all;
}

Result<SynthShape> FindSynthPreset(std::string_view name) {
  std::string names;
  for (const SynthShape& preset : SynthPresets()) {
    if (preset.name == name) return preset;
    names += Format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  return Fail(ErrorCode::kNotFound,
              Format("preset \"{}\" is not known; known are {}", name, names));
}

}  // namespace tilewright
