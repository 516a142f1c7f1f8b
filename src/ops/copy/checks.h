#pragma once

#include "ops/copy/copy.h"

namespace tilewright {

/// True for pairs of types that can be copied at all: equal, or both floats.
bool CanConvert(DataType src, DataType dst);

/// Every slot and position is inside the cache.
Status CheckPlaces(const KvScatterArgs& args);

}  // namespace tilewright
