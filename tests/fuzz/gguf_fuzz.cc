// Any bytes are a file or an error: parses the input and reads all that it offers.
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/gguf/gguf_test_util.h"
#include "tilewright/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = tilewright::GgufFile::Parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (file) tilewright::test::ReadEverything(*file);
  return 0;
}
