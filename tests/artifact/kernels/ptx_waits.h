#pragma once

#include <string>
#include <string_view>

namespace tilewright::test {

/// What a kernel may read of global memory before it waits: nothing; constants, by any load that may
/// not be moved; or what says where to prefetch, and constants, by ld.relaxed, which leaves nothing
/// in L1.
enum class ReadsAhead { kNever, kConstants, kPlacesToPrefetch };

/// What a kernel that may be started before the kernels in front of it have ended does wrong, by
/// its PTX: on some path it ends, writes global memory or (unless constants may be read ahead)
/// reads it without an unconditional griddepcontrol.wait before, or it has an ld.global.nc, which
/// ptxas may put in front of one. "" if nothing; else the statement.
std::string PtxWaitTrouble(std::string_view ptx, ReadsAhead reads);

}  // namespace tilewright::test
