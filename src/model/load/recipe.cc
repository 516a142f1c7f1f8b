#include "model/load/recipe.h"

#include <cstring>

#include "core/parallel.h"

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

const std::byte* Assemble(const GgufFile& file, const Recipe& recipe, std::byte* into,
                          Executor& executor) {
  constexpr std::size_t kGrain = std::size_t{1} << 20;
  const std::size_t row_bytes = BytesOf(recipe.spec.type, recipe.spec.k);
  if (recipe.group == 0) {
    std::byte* at = into;
    for (const GgufTensor* part : recipe.parts) {
      const std::byte* from = file.Bytes(*part).data();
      ParallelRanges(executor, static_cast<std::int64_t>(part->bytes), kGrain,
                     [&](std::int64_t begin, std::int64_t end) {
                       std::memcpy(at + begin, from + begin, static_cast<std::size_t>(end - begin));
                     });
      at += part->bytes;
    }
    return into;
  }
  const std::size_t group_bytes = row_bytes * static_cast<std::size_t>(recipe.group);
  const std::size_t all_bytes = group_bytes * recipe.parts.size();
  const auto groups = static_cast<std::int64_t>(recipe.parts[0]->bytes / group_bytes);
  const auto grain = static_cast<std::int64_t>(kGrain / all_bytes + 1);
  ParallelRanges(executor, groups, grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto group = static_cast<std::size_t>(begin); group < static_cast<std::size_t>(end);
         ++group) {
      std::byte* at = into + group * all_bytes;
      for (const GgufTensor* part : recipe.parts) {
        std::memcpy(at, file.Bytes(*part).data() + group * group_bytes, group_bytes);
        at += group_bytes;
      }
    }
  });
  return into;
}

}  // namespace tilewright
