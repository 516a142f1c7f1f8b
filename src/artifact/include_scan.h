#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"

namespace tilewright {

/// The names in the `#include` directives of a C++ text, in order, whether "x" or <x>, including
/// those that a condition would skip: an extra file in a key costs a compilation, but a missing one
/// would serve stale code. Comments, string and character literals (raw ones too) and spliced lines
/// are understood. kInvalidArgument if a directive's file cannot be determined (an include of a
/// macro, #include_next, #import, #embed), or if the text uses the time of its compilation:
/// __DATE__, __TIME__, __TIMESTAMP__.
Result<std::vector<std::string>> ScanIncludes(std::string_view text);

/// Whether `name` can be a virtual name: relative, of printable ASCII without quotes, brackets and
/// backslashes, no empty, "." or ".." part, at most 255 bytes.
bool IsVirtualName(std::string_view name);

}  // namespace tilewright
