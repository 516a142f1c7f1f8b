#include "tilewright/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "model/tokenizer/special_tokens.h"
#include "model/tokenizer/text_model.h"
#include "model/tokenizer/utf8.h"

namespace tilewright {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 30;

// Names of tokens that published models use to mark the end of a turn, message or text. Many files
// have only one of their ids in the metadata, or give these tokens the type of ordinary text;
// llama.cpp recognises them by name too.
constexpr std::array<std::string_view, 22> kEndNames = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
    "[e~[",
};

// Tokens of fill-in-the-middle prompts that a model writes when it continues with another file: the
// first one of each group that the vocabulary has ends the generation.
constexpr std::array<std::array<std::string_view, 5>, 3> kFileNames = {{
    {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
    {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
    {"<|file_sep|>", "", "", "", ""},
}};

// Further fill-in-the-middle tokens, which are control tokens whatever the file says.
constexpr std::array<std::string_view, 24> kMiddleNames = {
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<PRE>",
    "<|code_prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<SUF>",
    "<|code_suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<MID>",
    "<|code_middle|>",
    "<|middle|>",
    "<\xef\xbd\x9c"
    "fim\xe2\x96\x81"
    "begin\xef\xbd\x9c>",
    "<\xef\xbd\x9c"
    "fim\xe2\x96\x81"
    "hole\xef\xbd\x9c>",
    "<\xef\xbd\x9c"
    "fim\xe2\x96\x81"
    "end\xef\xbd\x9c>",
    "\xe2\x96\x81<PRE>",
    "\xe2\x96\x81<SUF>",
    "\xe2\x96\x81<MID>",
    "<|prefix|>",
    "<|suffix|>",
};

// Structure of gpt-oss's channels, which is always recognised and shown.
constexpr std::array<std::string_view, 4> kChannelNames = {"<|start|>", "<|channel|>",
                                                           "<|constrain|>", "<|message|>"};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(std::unique_ptr<TextModel> model) : text_model(std::move(model)) {}

  const Vocabulary& vocabulary() const { return text_model->vocabulary(); }
  Status CheckIds(const TokenizerSpec& spec) const;
  void MarkByName();
  bool EndsMessagesOnly() const;
  /// Where the text goes on after the special token that ends at text[end].
  std::size_t SkipSpaceAfter(TokenId special, std::string_view text, std::size_t end) const;

  std::unique_ptr<TextModel> text_model;
  SpecialTokenFinder all_special;
  SpecialTokenFinder user_defined;
  std::vector<TokenId> ends;         // ascending
  std::vector<TokenId> keeps_space;  // special tokens after which no white space is dropped
  bool strip_after_special = false;
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId eot = kNoToken;
  TokenId unk = kNoToken;
  TokenId pad = kNoToken;
  bool add_bos = false;
  bool add_eos = false;
  std::string pre;
  std::string chat_template;
};

Status Tokenizer::Impl::CheckIds(const TokenizerSpec& spec) const {
  const std::pair<const char*, TokenId> ids[] = {
      {"bos_token_id", spec.bos}, {"eos_token_id", spec.eos},     {"eot_token_id", spec.eot},
      {"eom_token_id", spec.eom}, {"unknown_token_id", spec.unk}, {"padding_token_id", spec.pad},
  };
  for (const auto& [key, id] : ids) {
    if (id != kNoToken && !vocabulary().Contains(id)) {
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("tokenizer.ggml.{} = {}: the vocabulary has {} tokens", key, id,
                              vocabulary().size()));
    }
  }
  const std::pair<const char*, bool> wanted[] = {{"bos", add_bos && spec.bos == kNoToken},
                                                 {"eos", add_eos && spec.eos == kNoToken}};
  for (const auto& [which, missing] : wanted) {
    if (missing) {
      return Fail(
          ErrorCode::kCorrupt,
          fmt::format("tokenizer.ggml.{0}_token_id is missing, but a {0} token is to be added",
                      which));
    }
  }
  return {};
}

/// Whether "<|end|>" ends a message but not the turn, as in gpt-oss, where a turn has several, and
/// in Solar.
bool Tokenizer::Impl::EndsMessagesOnly() const {
  const auto has = [this](std::string_view name) { return vocabulary().Find(name) != kNoToken; };
  return has("<|end|>") && (has("<|call|>") || has("<|calls|>")) &&
         (has("<|return|>") || has("<|flush|>"));
}

/// Finds the tokens that end a generation, and makes those that are known by name control tokens.
void Tokenizer::Impl::MarkByName() {
  const auto control = [this](TokenId id) {
    if (id != kNoToken) text_model->vocabulary().set_type(id, TokenType::kControl);
    return id;
  };
  for (const std::string_view name : kEndNames) {
    const TokenId id = name.empty() ? kNoToken : control(vocabulary().Find(name));
    if (id != kNoToken) ends.push_back(id);
  }
  for (const auto& group : kFileNames) {
    for (const std::string_view name : group) {
      const TokenId id = name.empty() ? kNoToken : control(vocabulary().Find(name));
      if (id == kNoToken) continue;
      ends.push_back(id);
      break;
    }
  }
  for (const std::string_view name : kMiddleNames) control(vocabulary().Find(name));
  const auto user_defined = [this](TokenId id) {
    if (id != kNoToken) text_model->vocabulary().set_type(id, TokenType::kUserDefined);
  };
  for (const std::string_view name : kChannelNames) user_defined(vocabulary().Find(name));
  if (EndsMessagesOnly()) {
    const TokenId end = vocabulary().Find("<|end|>");
    user_defined(end);
    std::erase(ends, end);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

std::size_t Tokenizer::Impl::SkipSpaceAfter(TokenId special, std::string_view text,
                                            std::size_t end) const {
  constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";
  if (!strip_after_special ||
      std::find(keeps_space.begin(), keeps_space.end(), special) != keeps_space.end())
    return end;
  return std::min(text.find_first_not_of(kWhiteSpace, end), text.size());
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Create(const TokenizerSpec& spec) {
  Result<const TextModelFamily*> family = FindTextModel(spec.model);
  if (!family) return Fail(std::move(family.error()));
  Result<std::unique_ptr<TextModel>> text_model = (*family)->create(spec);
  if (!text_model) return Fail(std::move(text_model.error()));

  auto impl = std::make_unique<Impl>(std::move(*text_model));
  impl->add_bos = spec.add_bos.value_or(impl->text_model->adds_bos());
  impl->add_eos = spec.add_eos.value_or(false);
  if (Status status = impl->CheckIds(spec); !status) return Fail(std::move(status.error()));
  impl->bos = spec.bos;
  impl->eos = spec.eos;
  impl->eot = spec.eot;
  impl->unk = spec.unk;
  impl->pad = spec.pad;
  impl->pre = spec.pre;
  impl->chat_template = spec.chat_template;
  for (const TokenId id : {spec.eos, spec.eot, spec.eom}) {
    if (id != kNoToken) impl->ends.push_back(id);
  }
  impl->MarkByName();
  impl->strip_after_special = spec.strip_after_special;
  for (const std::string_view name : {"<unk>", "<s>", "<|endoftext|>"})
    impl->keeps_space.push_back(impl->vocabulary().Find(name));
  impl->all_special.Build(impl->vocabulary(), false);
  impl->user_defined.Build(impl->vocabulary(), true);
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::FromGguf(const GgufFile& file) {
  Result<TokenizerSpec> spec = TokenizerSpecFromGguf(file);
  if (!spec) return Fail(std::move(spec.error()));
  return Create(*spec);
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxText) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("text of {} bytes: at most {} are allowed", text.size(), kMaxText));
  }
  const Impl& impl = *impl_;
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 2);
  if (options.add_special && impl.add_bos) out.push_back(impl.bos);
  const std::unique_ptr<TextModel::Encoder> encoder = impl.text_model->MakeEncoder();
  std::size_t done = 0;
  const auto encode_until = [&](std::size_t end) -> Status {
    return end > done ? encoder->Encode(text.substr(done, end - done), out) : Status();
  };
  for (const auto& match :
       (options.parse_special ? impl.all_special : impl.user_defined).FindAll(text)) {
    if (Status status = encode_until(match.begin); !status) return Fail(std::move(status.error()));
    out.push_back(match.id);
    done = impl.SkipSpaceAfter(match.id, text, match.end);
  }
  if (Status status = encode_until(text.size()); !status) return Fail(std::move(status.error()));
  if (options.add_special && impl.add_eos) out.push_back(impl.eos);
  return out;
}

Status Tokenizer::AppendPiece(TokenId id, bool special, std::string& out) const {
  const Vocabulary& vocabulary = impl_->vocabulary();
  if (!vocabulary.Contains(id)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("token id {}: the vocabulary has {} tokens", id, vocabulary.size()));
  }
  const std::string_view text = vocabulary.text(id);
  switch (vocabulary.type(id)) {
    case TokenType::kNormal:
      impl_->text_model->AppendBytes(text, out);
      break;
    case TokenType::kControl:
    case TokenType::kUnknown:
      if (special) out.append(text);
      break;
    case TokenType::kUserDefined:
      out.append(text);
      break;
    case TokenType::kByte: {
      // "<0x41>"
      const auto digit = [&text](std::size_t i) {
        const char c = i < text.size() ? text[i] : '?';
        if (c >= '0' && c <= '9') return c - '0';
        const int lower = c | 0x20;
        return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
      };
      if (digit(3) >= 0 && digit(4) >= 0)
        out.push_back(static_cast<char>(digit(3) * 16 + digit(4)));
      break;
    }
    case TokenType::kUndefined:
    case TokenType::kUnused:
      break;
  }
  return {};
}

Result<std::string> Tokenizer::Decode(std::span<const TokenId> ids, bool special) const {
  std::string out;
  const bool prefixed = impl_->text_model->adds_space_prefix();
  bool after_special = true;
  for (const TokenId id : ids) {
    const std::size_t before = out.size();
    if (Status status = AppendPiece(id, special, out); !status)
      return Fail(std::move(status.error()));
    const TokenType type = impl_->vocabulary().type(id);
    // The space that Encode put there.
    if (prefixed && after_special && type == TokenType::kNormal && before < out.size() &&
        out[before] == ' ')
      out.erase(before, 1);
    after_special = type == TokenType::kControl || type == TokenType::kUnknown ||
                    type == TokenType::kUserDefined;
  }
  return out;
}

int Tokenizer::vocab_size() const { return impl_->vocabulary().size(); }
TokenId Tokenizer::bos() const { return impl_->bos; }
TokenId Tokenizer::eos() const { return impl_->eos; }
TokenId Tokenizer::eot() const { return impl_->eot; }
TokenId Tokenizer::unk() const { return impl_->unk; }
TokenId Tokenizer::pad() const { return impl_->pad; }
bool Tokenizer::add_bos() const { return impl_->add_bos; }
bool Tokenizer::add_eos() const { return impl_->add_eos; }
std::string_view Tokenizer::pre() const { return impl_->pre; }
std::string_view Tokenizer::chat_template() const { return impl_->chat_template; }
TokenType Tokenizer::type(TokenId id) const {
  return impl_->vocabulary().Contains(id) ? impl_->vocabulary().type(id) : TokenType::kUndefined;
}
std::string_view Tokenizer::text(TokenId id) const {
  return impl_->vocabulary().Contains(id) ? impl_->vocabulary().text(id) : std::string_view();
}
TokenId Tokenizer::Find(std::string_view text) const { return impl_->vocabulary().Find(text); }
bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  return std::binary_search(impl_->ends.begin(), impl_->ends.end(), id);
}
std::span<const TokenId> Tokenizer::end_of_generation() const { return impl_->ends; }

Result<std::string> StreamDecoder::Push(TokenId id) {
  if (Status status = tokenizer_->AppendPiece(id, special_, held_); !status)
    return Fail(std::move(status.error()));
  std::string out;
  TakeCompleteCharacters(held_, out);
  return out;
}

std::string StreamDecoder::Flush() {
  const bool begun = !held_.empty();
  held_.clear();
  return begun ? std::string(kReplacement) : std::string();
}

}  // namespace tilewright
