#include "model/synth/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tilewright::synth {
namespace {

// The correction of each frequency by Llama 3's rule: wavelengths shorter than a quarter of the
// original context are kept, longer ones than the context are stretched by `factor`, and those in
// between are interpolated.
std::vector<float> Llama3Factors(const SynthShape& shape) {
  constexpr double kLowFactor = 1, kHighFactor = 4, kOriginalContext = 8192;
  const int dims = RotatedDims(shape);
  std::vector<float> factors;
  for (int i = 0; i < dims; i += 2) {
    const double frequency =
        std::pow(static_cast<double>(shape.rope_base), -static_cast<double>(i) / dims);
    const double wave = 2 * std::numbers::pi / frequency;
    double factor = 1;
    if (wave > kOriginalContext / kLowFactor) {
      factor = shape.rope_factor;
    } else if (wave >= kOriginalContext / kHighFactor) {
      const double smooth = (kOriginalContext / wave - kLowFactor) / (kHighFactor - kLowFactor);
      factor = 1 / ((1 - smooth) / shape.rope_factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

// Waves are stretched the more, the longer they are, by at most `stretch`.
std::vector<float> ContextFactors(const SynthShape& shape, double stretch) {
  const int pairs = RotatedDims(shape) / 2;
  std::vector<float> factors;
  for (int i = 0; i < pairs; ++i)
    factors.push_back(static_cast<float>(1 + (stretch - 1) * i / std::max(1, pairs - 1)));
  return factors;
}

}  // namespace

std::vector<float> RopeFactors(WeightRole role, const SynthShape& shape) {
  if (role == WeightRole::kRopeFactors)
    return shape.rope_factor > 0 ? Llama3Factors(shape) : std::vector<float>();
  if (shape.original_context == 0 || shape.yarn_factor > 0) return {};
  // As in Phi 3.5, the longest waves of the long context are stretched by more than it has grown.
  const double growth = static_cast<double>(shape.context) / shape.original_context;
  return ContextFactors(shape, role == WeightRole::kRopeFactorsLong ? 2 * growth : 1.25);
}

}  // namespace tilewright::synth
