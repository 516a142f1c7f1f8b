#pragma once

#include <string>
#include <string_view>

#include "tilewright/kernel_spec.h"
#include "tilewright/result.h"

namespace tilewright {

/// The lines, trimmed and joined by "; ", or after a colon by a blank.
std::string OneLine(std::string_view text);

/// The first line of a compiler's log that reports an error, else the first line.
std::string TellingLine(std::string_view log);

/// The error as Compile returns it: one line that starts with the name of the spec.
Error NamedError(const KernelSpec& spec, Error error);

}  // namespace tilewright
