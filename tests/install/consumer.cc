// Touches every part that brings a library of its own along (records, tokenizer), so that a missing
// one fails to link here.
#include <cstdio>
#include <string>

#include "tilewright/gguf.h"
#include "tilewright/tilewright.h"
#include "tilewright/tokenizer.h"

int main(int argc, char** argv) {
  tilewright::ContextOptions options;
  options.cache_dir = argc > 1 ? argv[1] : "cache";
  auto context = tilewright::Context::Create(options);
  if (!context) {
    std::fprintf(stderr, "%s\n", context.error().message.c_str());
    return 1;
  }
  auto file = tilewright::GgufFile::Open(argc > 2 ? argv[2] : "missing.gguf");
  if (file && !tilewright::Tokenizer::FromGguf(*file)) return 1;
  const std::string device = (*context)->device_spec().ClassId();
  std::printf("tilewright %s on %s\n", std::string(tilewright::Version()).c_str(), device.c_str());
  return 0;
}
