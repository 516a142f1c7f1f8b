#pragma once

#include <string>
#include <string_view>

#include "tilewright/kernel_spec.h"
#include "tilewright/result.h"

namespace tilewright {

/// Lines joined with "; " (after a colon with a blank), without the blanks around them.
std::string OneLine(std::string_view text);

/// Of a compiler's log the first line that tells of an error, else the first.
std::string TellingLine(std::string_view log);

/// The error as Compile gives it: one line that starts with the name of the spec.
Error NamedError(const KernelSpec& spec, Error error);

}  // namespace tilewright
