#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tilewright/rope_table.h"

namespace tilewright::rope {

/// Radians a position of pair `i`. Precondition: CheckParams accepted the parameters.
double Frequency(const RopeParams& params, const float* factors, int i);

/// Turns the pairs of one head, of params.dims elements or more, in float64: what the oracles
/// compute.
void TurnHead(const RopeParams& params, const float* factors, double position,
              std::span<double> head);

/// Radians a position as fractions of a turn in units of 2^-64, whole turns dropped.
std::vector<std::uint64_t> TurnsOf(std::span<const double> frequencies);

/// The rules that Table::Make documents.
Status CheckParams(const RopeParams& params, const float* factors);

}  // namespace tilewright::rope
