#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"

namespace tilewright {

/// The names that `#include` directives of a C++ text name, in order, "x" and <x> alike, also those
/// that a condition would skip: a file too many in a key costs a compilation, one too few would
/// serve stale code. Comments, string and character literals (raw ones too) and spliced lines are
/// understood. kInvalidArgument where a directive's file cannot be known here: an include of a
/// macro, #include_next, #import, #embed; or where the text names the moment of its
/// compilation: __DATE__, __TIME__, __TIMESTAMP__.
Result<std::vector<std::string>> ScanIncludes(std::string_view text);

/// Whether `name` can be a virtual name: relative, of printable ASCII without quotes, brackets and
/// backslashes, no empty, "." or ".." part, at most 255 bytes.
bool IsVirtualName(std::string_view name);

}  // namespace tilewright
