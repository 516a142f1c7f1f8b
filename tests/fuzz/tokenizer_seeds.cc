// Writes the inputs that tokenizer_fuzz starts from into the folder given.

#include <fstream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  // The first byte says what the rest is: 3 and 6 a vocabulary and a text, 5 text for
  // SentencePiece, others text for byte-level BPE.
  const std::string texts[] = {
      "It's 12345  words, \xc3\xa9t\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80!\r\n\n  "
      "\tend",
      "<|a|>>  <|a|>\xed\xa0\x80\xc0\xaf\xff\xf4\x90\x80\x80 don'T  \xe3\x80\x80 12\xc2\xb2",
  };
  int count = 0;
  const auto write = [&](char kind, const std::string& body) {
    std::ofstream(std::string(argv[1]) + "/seed" + std::to_string(count++), std::ios::binary)
        << kind << body;
  };
  for (char kind = 0; kind < 16; ++kind) {
    if (kind == 3 || kind == 6) continue;
    for (const std::string& text : texts) write(kind, text);
  }
  write(6,
        "2<unk>\n3<s>\ns\ns\n<\n1a\nsxx\n1b\nsx\n1ab\nsxxx\n1\xe2\x96\x81"
        "a\nsxx\n\nab <s> ba\xff");
  write(3, "1a\n1b\n1ab\n1\xc4\xa0\n3<|im_end|>\nma b\nb\n\nab <|im_end|> ba");
  return 0;
}
