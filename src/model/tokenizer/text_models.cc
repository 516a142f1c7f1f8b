// The one list of tokenizer families.
#include <fmt/format.h>

#include <array>

#include "model/tokenizer/text_model.h"

namespace tilewright {
namespace {

constexpr std::array<const TextModelFamily*, 2> kFamilies = {&kByteLevelBpe, &kSentencePiece};

}  // namespace

Result<const TextModelFamily*> FindTextModel(std::string_view model) {
  std::string known;
  for (const TextModelFamily* family : kFamilies) {
    if (family->model == model) return family;
    known += fmt::format("{}'{}' ({})", known.empty() ? "" : ", ", family->model, family->name);
  }
  return Fail(
      ErrorCode::kUnsupported,
      fmt::format("tokenizer.ggml.model = '{}': not supported; supported are {}", model, known));
}

}  // namespace tilewright
