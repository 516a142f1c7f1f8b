#pragma once

#include <string>
#include <string_view>

namespace tilewright::jinja {

/// Appends the text of a string literal, given without its quotes, to `out`. The escapes are
/// Python's; an unknown one stays as it is written. False for one that is cut off, or a character
/// by its name (\N).
bool ReadEscapes(std::string_view literal, std::string& out);

}  // namespace tilewright::jinja
