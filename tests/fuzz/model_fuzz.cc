// Any file is a model of each architecture or an error: reads the metadata and loads the weights.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/arch/architecture.h"
#include "model/load/load.h"

namespace tilewright {
namespace {

/// As a model of every architecture, with and without merged weights.
void LoadAs(std::span<const std::byte> bytes) {
  for (const Architecture* architecture : Architectures()) {
    for (const bool fuse : {true, false}) {
      auto file = GgufFile::Parse(bytes, "fuzz");
      if (!file) return;
      ModelOptions options;
      options.fuse = fuse;
      const auto model = LoadModel(std::move(*file), *architecture, options);
      if (!model && model.error().message.empty()) __builtin_trap();
    }
  }
}

}  // namespace
}  // namespace tilewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Tensors are used where they lie, so they must lie as in a mapped file.
  constexpr std::size_t kAlignment = 64;
  std::vector<std::byte> memory(size + kAlignment);
  void* start = memory.data();
  std::size_t space = memory.size();
  const std::span bytes(static_cast<std::byte*>(std::align(kAlignment, size, start, space)), size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), bytes.begin());
  tilewright::LoadAs(bytes);
  return 0;
}
