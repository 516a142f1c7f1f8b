#pragma once

#include <string>
#include <string_view>

#include "model/jinja/heap.h"
#include "model/jinja/unicode.h"

namespace tilewright::jinja {

/// Case of ASCII letters. Other letters are an error: the tables of Unicode are not here, and a
/// prompt that differs in silence would be worse.
std::string LowerCase(Heap& heap, std::string_view text);
std::string UpperCase(Heap& heap, std::string_view text);

/// `text` with the first `most` occurrences of `from` replaced; negative: all. The heap pays.
std::string ReplaceAll(Heap& heap, std::string_view text, std::string_view from,
                       std::string_view to, std::int64_t most);

}  // namespace tilewright::jinja
