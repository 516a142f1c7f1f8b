#pragma once

#include "ops/rope/rope.h"

namespace tilewright::rope {

/// Radians a position of pair `i`. Precondition: CheckParams accepted the parameters.
double Frequency(const RopeParams& params, const float* factors, int i);

/// The rules that Table::Make documents.
Status CheckParams(const RopeParams& params, const float* factors);

/// -1 <= positions[r] for all rows; the error names the first that is not.
Status CheckPositions(const Args& args);

}  // namespace tilewright::rope
