#pragma once

#include <string>

#include "tilewright/result.h"

namespace tilewright {

/// Folder of tuning records and compiled artifacts: $TILEWRIGHT_CACHE_DIR, else
/// $XDG_CACHE_HOME/tilewright, else $HOME/.cache/tilewright. The latter two must be absolute, as
/// the
/// XDG specification demands; relative ones count as unset. kUnavailable if none of the three is
/// usable. Creates nothing.
Result<std::string> CacheDir();

/// Creates the folder and its parents (mode 0700 for those that are new). kIo names the folder and
/// the system's reason.
Status MakeDirs(const std::string& path);

}  // namespace tilewright
