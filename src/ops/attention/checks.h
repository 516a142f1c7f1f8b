#pragma once

#include "ops/attention/attention.h"

namespace tilewright::attention {

/// Every row is padding, or its slot, its position and the pages that it reads are in range.
Status CheckRows(const Args& args);

/// The problem of arguments that fit together.
Desc ShapeOf(const Args& args, const CallTerms& terms);

}  // namespace tilewright::attention
