#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tilewright/kernel_family.h"

/// Families `rope_kv`, rotary embedding of q and k with the scatter of k and v into the KV cache,
/// and `rope`, that of heads in place, to another tensor or into a cache. README.md of the room
/// names the fields of their specs.

namespace tilewright {

KernelFamily RopeKvFamily();
KernelFamily RopeFamily();

/// kInvalidArgument if a name is taken.
Status AddRopeFamilies(KernelFamilies& families);

/// rope::Table::frequencies() (radians a position) as the kernel takes them: fractions of a turn in
/// units of 2^-64, whole turns dropped. All the kinds of scaling are in the frequencies.
std::vector<std::uint64_t> RopeTurns(std::span<const double> frequencies);

}  // namespace tilewright
