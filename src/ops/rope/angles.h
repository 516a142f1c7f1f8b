#pragma once

#include "ops/rope/rope.h"

namespace tilewright {

/// Radians a position of pair `i`. Precondition: CheckRopeParams accepted the parameters.
double RopeFrequency(const RopeParams& params, const float* factors, int i);

/// The rules that RopeTable::Make documents.
Status CheckRopeParams(const RopeParams& params, const float* factors);

/// 0 <= positions[r] for all rows; the error names the first that is not.
Status CheckPositions(const RopeArgs& args);

}  // namespace tilewright
