#include "model/tokenizer/byte_alphabet.h"

namespace tilewright {
namespace {

constexpr int kAlphabetEnd = 0x144;  // the last of the 68 unprintable bytes is U+0143

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<ByteSymbol, 256> MakeSymbols() {
  std::array<ByteSymbol, 256> symbols{};
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = StandsForItself(byte) ? byte : next++;
    ByteSymbol& symbol = symbols[static_cast<std::size_t>(byte)];
    if (character < 0x80) {
      symbol = {{static_cast<char>(character), 0}, 1};
    } else {
      symbol = {{static_cast<char>(0xc0 | (character >> 6)),
                 static_cast<char>(0x80 | (character & 0x3f))},
                2};
    }
  }
  return symbols;
}

/// For each character the byte that it represents, or -1.
constexpr std::array<std::int16_t, kAlphabetEnd> MakeBytes() {
  std::array<std::int16_t, kAlphabetEnd> bytes{};
  for (std::int16_t& byte : bytes) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    bytes[static_cast<std::size_t>(StandsForItself(byte) ? byte : next++)] =
        static_cast<std::int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<std::int16_t, kAlphabetEnd> kBytes = MakeBytes();

}  // namespace

constexpr std::array<ByteSymbol, 256> kByteSymbols = MakeSymbols();

void AppendByteSymbols(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) out.append(kByteSymbols[static_cast<std::uint8_t>(byte)].view());
}

void AppendBytesOfSymbols(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<std::uint8_t>(text[i]);
    std::size_t character = lead;
    std::size_t size = 1;
    if (lead >= 0xc2 && lead <= 0xdf && i + 1 < text.size()) {
      const auto next = static_cast<std::uint8_t>(text[i + 1]);
      if ((next & 0xc0) == 0x80) {
        character = (static_cast<std::size_t>(lead & 0x1f) << 6) | (next & 0x3f);
        size = 2;
      }
    }
    // A lone byte above 0x7f is not a character and must not be taken for the Latin-1 character of
    // that number.
    const bool in_alphabet =
        (size == 2 || lead < 0x80) && character < kBytes.size() && kBytes[character] >= 0;
    if (in_alphabet) {
      out.push_back(static_cast<char>(kBytes[character]));
    } else {
      out.append(text.substr(i, size));
    }
    i += size - 1;
  }
}

}  // namespace tilewright
