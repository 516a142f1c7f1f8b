#pragma once

#include "tilewright/executor.h"

namespace tilewright {

/// Nanoseconds from a store by one worker of `executor` until another that waits for it has seen it: how far apart
/// cores are. Tens where they share a last-level cache, hundreds where they do not. A virtual machine may find
/// its cores close together now and far apart a minute later, at the same clock; launches in which workers read
/// what others wrote take longer then. Takes less than a millisecond; where no two workers run at the same time within 20
/// milliseconds, it gives 0.
double MeasureHandOverNs(Executor& executor);

}  // namespace tilewright
