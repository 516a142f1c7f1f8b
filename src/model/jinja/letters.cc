#include "model/jinja/letters.h"

namespace tilewright::jinja {
namespace {

std::string ChangeCase(Heap& heap, std::string_view text, char first, char last) {
  if (!IsAscii(text)) {
    heap.Error(ErrorCode::kUnsupported, "the case of letters beyond ASCII is changed");
    return {};
  }
  std::string out(text);
  for (char& c : out) {
    if (c >= first && c <= last) c = static_cast<char>(c ^ 0x20);
  }
  return out;
}

}  // namespace

std::string LowerCase(Heap& heap, std::string_view text) {
  return ChangeCase(heap, text, 'A', 'Z');
}

std::string UpperCase(Heap& heap, std::string_view text) {
  return ChangeCase(heap, text, 'a', 'z');
}

std::string ReplaceAll(Heap& heap, std::string_view text, std::string_view from,
                       std::string_view to, std::int64_t most) {
  std::string out;
  std::size_t at = 0;
  for (; most != 0; --most) {
    const std::size_t found = text.find(from, at);
    if (found == std::string_view::npos || !heap.Spend(to.size() + 1)) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
    if (!from.empty()) continue;
    // Nothing is found before every character, and at the end.
    if (at == text.size()) return out;
    const std::size_t size = CharacterAt(text, at).size;
    out.append(text.substr(at, size));
    at += size;
  }
  return out.append(text.substr(at));
}

}  // namespace tilewright::jinja
