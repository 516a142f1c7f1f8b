#include "model/load/recipe.h"

#include <cstring>

namespace tilewright {

std::vector<GgufTensor> PartsOf(const TensorRule& rule, const GgufTensor& tensor,
                                const ModelConfig& config) {
  std::vector<GgufTensor> parts;
  std::uint64_t offset = tensor.offset;
  for (const TensorPart& rows : rule.parts) {
    GgufTensor& part = parts.emplace_back(tensor);
    part.shape[1] = ExtentOf(rows.n, config);
    part.bytes = BytesOf(tensor.dtype, part.shape[0] * part.shape[1]);
    part.offset = offset;
    offset += part.bytes;
  }
  return parts;
}

const std::byte* Assemble(const GgufFile& file, const Recipe& recipe, std::byte* into) {
  const std::size_t row_bytes = BytesOf(recipe.spec.type, recipe.spec.k);
  if (recipe.group == 0) {
    std::byte* at = into;
    for (const GgufTensor* part : recipe.parts) {
      std::memcpy(at, file.Bytes(*part).data(), part->bytes);
      at += part->bytes;
    }
    return into;
  }
  const std::size_t group_bytes = row_bytes * static_cast<std::size_t>(recipe.group);
  std::byte* at = into;
  for (std::size_t from = 0; from < recipe.parts[0]->bytes; from += group_bytes) {
    for (const GgufTensor* part : recipe.parts) {
      std::memcpy(at, file.Bytes(*part).data() + from, group_bytes);
      at += group_bytes;
    }
  }
  return into;
}

}  // namespace tilewright
