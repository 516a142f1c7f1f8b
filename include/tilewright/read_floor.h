#pragma once

#include <cstdint>

#include "tilewright/executor.h"

namespace tilewright {

/// Seconds that all workers of `executor` take to read `bytes` of memory once, with the widest loads
/// of this processor, while they read the same memory again and again: what a decoder that reads so
/// many bytes a token cannot beat, wherever they lie. The better of two ways to share them among the
/// workers. Holds that much memory meanwhile; beyond 2 GiB, or eight times the last-level cache if
/// that is more, or half of what is free, a part of that size, scaled. 0 if there is no memory.
double MeasureReadSeconds(Executor& executor, std::int64_t bytes);

}  // namespace tilewright
