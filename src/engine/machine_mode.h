#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tilewright {

// Speeds of a machine, from what a loop of fixed work took beside samples. Pure functions: the same
// times give the same answer anywhere.

/// The longest time of the reference loop beside a sample of one block.
struct BlockReference {
  int block = 0;
  double reference_us = 0;
};

/// The machine is slow where the loop takes more than this many times what it does at full speed.
/// Clocks that follow temperature and load move it by some per cent, a neighbour on the other thread
/// of a core or a throttled unit by half and more.
constexpr double kSlowMode = 1.3;

/// What the loop takes at full speed: the lower decile of `times`, not their least, since no timer is
/// beyond doubt; or `known`, if that is less. Times of 0 and less are none; 0: nothing is known.
double FullSpeedUs(std::span<const double> times, double known);

/// Blocks in which the machine was slow, in the order given.
std::vector<int> SlowBlocks(std::span<const BlockReference> blocks, double full_speed_us);

/// Why samples of these blocks decide nothing; nullopt if none was slow.
std::optional<std::string> SlowSpell(std::span<const BlockReference> blocks, double full_speed_us);

}  // namespace tilewright
