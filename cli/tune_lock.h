#pragma once

#include "verbs.h"

namespace tilewright::cli {

// `tune` with a lock. Both decide every problem that the options name by the records there are, as
// a run would, and measure nothing. Words and the report's path were checked before.

/// Compares with the lock; kExitFailed where they differ, or the lock lacks a problem.
int CheckAgainstLock(const TuneArguments& options);
/// Replaces or adds the lines of these problems on this device class; other lines stay.
int WriteLock(const TuneArguments& options);

}  // namespace tilewright::cli
