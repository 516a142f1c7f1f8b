#pragma once

#include "engine/cache/dispatch_cache_template.h"
#include "engine/tune/measurer_template.h"
#include "engine/tune/tune_template.h"

/// All that records and tuning need of an operation whose room declares its trial (trial.h); in the
/// .cc file that does.
#define TILEWRIGHT_INSTANTIATE_TUNING(OP) \
  TILEWRIGHT_INSTANTIATE_CACHE(OP);       \
  TILEWRIGHT_INSTANTIATE_TUNE(OP);        \
  TILEWRIGHT_INSTANTIATE_MEASURER(OP)
