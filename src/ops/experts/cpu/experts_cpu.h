#pragma once

#include <cstdint>

namespace tilewright {

/// The `used` largest of `experts` logits, best first, of equal ones the first, NaN below all; and
/// their weights, as route.h says.
using RouteRowFunction = void (*)(const float* logits, int experts, int used, bool normalise,
                                  float scale, std::int32_t* chosen, float* weights);
/// out[i] = sum over j of weights[j] * rows[j][i], in the order of j, + factor * shared[i] where
/// there is `shared`.
using CombineRowFunction = void (*)(const float* const* rows, const float* weights, int used,
                                    const float* shared, float factor, std::int64_t cols,
                                    float* out);

/// Both operations for one instruction set.
struct ExpertsImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_expert;  ///< of a row that is routed, one thread
  double ns_per_value;   ///< that is added to a sum, one thread, data in the L2
  RouteRowFunction route;
  CombineRowFunction combine;
};

extern const ExpertsImpl kExpertsScalar;
extern const ExpertsImpl kExpertsAvx2;
extern const ExpertsImpl kExpertsAvx512;

}  // namespace tilewright
