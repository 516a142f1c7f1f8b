#pragma once

#include "engine/cache/dispatch_cache_template.h"
#include "engine/tune/matrix_template.h"
#include "engine/tune/measurer_template.h"
#include "engine/tune/tune_template.h"

/// Everything that records and tuning need for an operation that declares a trial (trial.h); used
/// in the .cc file that declares it.
#define TILEWRIGHT_INSTANTIATE_TUNING(OP) \
  TILEWRIGHT_INSTANTIATE_CACHE(OP);       \
  TILEWRIGHT_INSTANTIATE_TUNE(OP);        \
  TILEWRIGHT_INSTANTIATE_MATRIX(OP);      \
  TILEWRIGHT_INSTANTIATE_MEASURER(OP)
