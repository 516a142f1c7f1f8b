#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tilewright {

/// Text as the tokenizer sees it: `bytes` are what becomes tokens, `match` what the pre-tokenizer's
/// pattern reads. They have the same length, and differ only where the text has surrogates: there
/// `match` has U+E000, also three bytes and of no class, because PCRE2 takes only well-formed text.
struct NormalText {
  std::string_view bytes;
  std::string_view match;
};

/// Room for what Normalize has to rewrite. Reused from one text to the next.
struct NormalizeBuffer {
  std::string bytes;
  std::string match;
};

/// Well-formed text is returned as it is, without a copy. Else each byte that begins no character
/// becomes U+FFFD, characters in an overlong form are shortened, surrogates are kept. The views
/// point into `text` or `buffer`.
NormalText Normalize(std::string_view text, NormalizeBuffer& buffer);

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// Moves all complete characters from the front of `bytes` to `out`, with U+FFFD for each longest
/// run of bytes that begins a character but does not end one. What stays in `bytes` (at most three)
/// is the beginning of a character.
void TakeCompleteCharacters(std::string& bytes, std::string& out);

}  // namespace tilewright
