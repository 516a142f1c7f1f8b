#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilewright {

/// GPT-2's characters for the 256 bytes, so that every byte can be written in a text file:
/// printable Latin-1 characters represent themselves, the other bytes get U+0100 onwards, in order.
/// Each takes one or two bytes of UTF-8.
struct ByteSymbol {
  char text[2];
  std::uint8_t size;
  std::string_view view() const { return {text, size}; }
};
extern const std::array<ByteSymbol, 256> kByteSymbols;

/// Appends the spelling of `bytes` in the alphabet.
void AppendByteSymbols(std::string_view bytes, std::string& out);

/// Appends the bytes that `text` represents. Characters outside the alphabet (in tokens added by
/// hand) are kept.
void AppendBytesOfSymbols(std::string_view text, std::string& out);

}  // namespace tilewright
