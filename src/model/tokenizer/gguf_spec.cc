#include <fmt/format.h>

#include <utility>

#include "model/tokenizer/text_model.h"
#include "tilewright/gguf.h"
#include "tilewright/tokenizer.h"

namespace tilewright {
namespace {

/// Sets `out` from `result`; absence is not an error.
template <class T, class Out>
Status Optional(Result<T> result, Out& out) {
  if (result) {
    out = static_cast<Out>(*result);
  } else if (result.error().code != ErrorCode::kNotFound) {
    return Fail(std::move(result.error()));
  }
  return {};
}

/// Sets `out` from `result`.
template <class T, class Out>
Status Needed(Result<T> result, Out& out) {
  if (!result) return Fail(std::move(result.error()));
  out = Out(std::move(*result));
  return {};
}

/// Whether the model is named Phi-3, in any case.
bool IsPhi3(const GgufFile& file) {
  const Result<std::string_view> name = file.String("general.name");
  if (!name) return false;
  std::string lower(*name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
}

/// Ids are rows of the embedding, so there must be as many tokens.
Status CheckEmbedding(const GgufFile& file, const TokenizerSpec& spec) {
  constexpr std::string_view kEmbedding = "token_embd.weight";
  const GgufTensor* table = file.FindTensor(kEmbedding);
  const auto tokens = static_cast<std::int64_t>(spec.tokens.size());
  if (table == nullptr || table->shape[1] == tokens) return {};
  return Fail(ErrorCode::kCorrupt,
              fmt::format("tokenizer.ggml.tokens: {} tokens, but {} has {} rows", tokens,
                          kEmbedding, table->shape[1]));
}

}  // namespace

Result<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file) {
  TokenizerSpec spec;
  const auto read = [&](Status status, Status& first) {
    if (first && !status) first = std::move(status);
  };
  Status status;
  read(Needed(file.String("tokenizer.ggml.model"), spec.model), status);
  if (!status) return Fail(std::move(status.error()));
  Result<const TextModelFamily*> family = FindTextModel(spec.model);
  if (!family) return Fail(std::move(family.error()));
  read((*family)->read(file, spec), status);
  read(Needed(file.Strings("tokenizer.ggml.tokens"), spec.tokens), status);
  if (file.Has("tokenizer.ggml.token_type")) {
    read(Needed(file.I32s("tokenizer.ggml.token_type"), spec.token_types), status);
  }
  if (status) status = CheckEmbedding(file, spec);
  spec.strip_after_special = IsPhi3(file);
  const auto fallback = [&](TokenId id) {
    return id < static_cast<std::int64_t>(spec.tokens.size()) ? id : kNoToken;
  };
  spec.bos = fallback((*family)->bos);
  spec.eos = fallback((*family)->eos);
  spec.unk = fallback((*family)->unk);
  const std::pair<const char*, TokenId*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &spec.bos},
      {"tokenizer.ggml.eos_token_id", &spec.eos},
      {"tokenizer.ggml.eot_token_id", &spec.eot},
      {"tokenizer.ggml.eom_token_id", &spec.eom},
      {"tokenizer.ggml.unknown_token_id", &spec.unk},
      {"tokenizer.ggml.padding_token_id", &spec.pad},
  };
  for (const auto& [key, id] : ids) {
    read(Optional(file.I32(key), *id), status);
    // In memory, -1 means that there is no such token; in a file it is an id out of range.
    if (status && *id < 0 && file.Has(key))
      status = Fail(ErrorCode::kCorrupt, fmt::format("{} = {}: not a token id", key, *id));
  }
  read(Optional(file.Bool("tokenizer.ggml.add_bos_token"), spec.add_bos), status);
  read(Optional(file.Bool("tokenizer.ggml.add_eos_token"), spec.add_eos), status);
  read(Optional(file.Bool("tokenizer.ggml.add_space_prefix"), spec.add_space_prefix), status);
  read(Optional(file.String("tokenizer.chat_template"), spec.chat_template), status);
  if (!status) return Fail(std::move(status.error()));
  return spec;
}

}  // namespace tilewright
