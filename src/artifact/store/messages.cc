#include "artifact/store/messages.h"

#include <algorithm>
#include <utility>

namespace tilewright {

namespace {

/// Removes the next line that is not blank from `text` and returns it; empty at the end.
std::string_view TakeLine(std::string_view& text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  const std::size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
  const std::string_view line = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return line.substr(0, line.find_last_not_of(kBlank) + 1);
}

}  // namespace

std::string OneLine(std::string_view text) {
  std::string joined;
  for (std::string_view line = TakeLine(text); !line.empty(); line = TakeLine(text)) {
    if (!joined.empty()) joined += joined.back() == ':' ? " " : "; ";
    joined += line;
  }
  return joined;
}

std::string TellingLine(std::string_view log) {
  const std::string_view first = TakeLine(log);
  for (std::string_view line = first; !line.empty(); line = TakeLine(log)) {
    if (line.find("error") != std::string_view::npos) return std::string(line);
  }
  return std::string(first);
}

Error NamedError(const KernelSpec& spec, Error error) {
  const std::string name = SpecName(spec);
  error.message = OneLine(error.message);
  if (!error.message.starts_with(name)) error.message = name + ": " + error.message;
  return error;
}

}  // namespace tilewright
