#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tilewright {

/// Formats text; the format string is checked at compile time. Include this header in .cc files
/// only: fmt is slow to compile.
template <class... A>
std::string Format(fmt::format_string<A...> format, A&&... args) {
  return fmt::format(format, std::forward<A>(args)...);
}

/// Makes untrusted text fit for a message: control characters and bytes above ASCII become \xNN,
/// and text beyond `limit` characters is cut off with "...".
std::string Printable(std::string_view text, std::size_t limit = 200);

/// "512 B", "1.5 KiB", "105.4 MiB": three significant digits, powers of 1024.
std::string HumanBytes(std::uint64_t bytes);

}  // namespace tilewright
