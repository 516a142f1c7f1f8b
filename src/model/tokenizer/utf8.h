#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tilewright {

/// Text as the tokenizer sees it: `bytes` become tokens, `match` is read by the pre-tokenizer's
/// pattern. They have the same length, and differ only where the text has surrogates: there `match`
/// has U+E000, which is also three bytes long and in no class, because PCRE2 accepts only
/// well-formed text.
struct NormalText {
  std::string_view bytes;
  std::string_view match;
};

/// Scratch memory of Normalize, reused from one text to the next.
struct NormalizeBuffer {
  std::string bytes;
  std::string match;
};

/// Well-formed text is returned unchanged, without a copy. Otherwise each byte that does not begin
/// a character becomes U+FFFD, overlong encodings are shortened, and surrogates are kept. The views
/// point into `text` or `buffer`.
NormalText Normalize(std::string_view text, NormalizeBuffer& buffer);

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// Moves all complete characters from the front of `bytes` to `out`, with U+FFFD for each maximal
/// run of bytes that begins a character but does not complete one. The bytes that stay (at most
/// three) are the beginning of a character.
void TakeCompleteCharacters(std::string& bytes, std::string& out);

}  // namespace tilewright
