// Byte-level BPE: GPT-2, Llama 3, Qwen, SmolLM.
#include <utility>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/pre_split.h"
#include "model/tokenizer/text_model.h"
#include "model/tokenizer/utf8.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

class ByteLevelBpe final : public TextModel {
 public:
  ByteLevelBpe(Vocabulary vocabulary, PreSplitter splitter)
      : TextModel(std::move(vocabulary)), splitter_(std::move(splitter)) {}

  bool adds_bos() const override { return splitter_.family().add_bos; }
  std::unique_ptr<Encoder> MakeEncoder() const override;
  void AppendBytes(std::string_view spelling, std::string& out) const override {
    AppendBytesOfSymbols(spelling, out);
  }
  const PreSplitter& splitter() const { return splitter_; }

 private:
  PreSplitter splitter_;
};

/// Splits the text into words by the vocabulary's pattern; then merges inside each.
class BpeEncoder final : public TextModel::Encoder {
 public:
  explicit BpeEncoder(const ByteLevelBpe& model) : model_(model), words_(model.vocabulary()) {}

  Status Encode(std::string_view raw, std::vector<TokenId>& out) override {
    const NormalText text = Normalize(raw, buffer_);
    PreSplitter::Cursor cursor(model_.splitter(), text.match);
    while (true) {
      Result<bool> more = cursor.Next();
      if (!more) return Fail(std::move(more.error()));
      if (!*more) return {};
      const std::string_view word =
          text.bytes.substr(cursor.begin(), cursor.end() - cursor.begin());
      if (!AppendWhole(word, out)) words_.Encode(word, out);
    }
  }

 private:
  /// For families that look up whole words first: appends the token of `word`, if there is one.
  bool AppendWhole(std::string_view word, std::vector<TokenId>& out) {
    const Vocabulary& vocabulary = model_.vocabulary();
    if (!model_.splitter().family().whole_words_first || word.size() > vocabulary.longest_token())
      return false;
    symbols_.clear();
    AppendByteSymbols(word, symbols_);
    const TokenId id = vocabulary.Find(symbols_);
    if (id != kNoToken) out.push_back(id);
    return id != kNoToken;
  }

  const ByteLevelBpe& model_;
  NormalizeBuffer buffer_;
  WordEncoder words_;
  std::string symbols_;
};

std::unique_ptr<TextModel::Encoder> ByteLevelBpe::MakeEncoder() const {
  return std::make_unique<BpeEncoder>(*this);
}

Status Read(const GgufFile& file, TokenizerSpec& spec) {
  Result<std::string_view> pre = file.String("tokenizer.ggml.pre");
  if (!pre) return Fail(std::move(pre.error()));
  spec.pre = std::string(*pre);
  auto merges = file.Strings("tokenizer.ggml.merges");
  if (!merges) return Fail(std::move(merges.error()));
  spec.merges = std::move(*merges);
  return {};
}

Result<std::unique_ptr<TextModel>> Create(const TokenizerSpec& spec) {
  Result<PreSplitter> splitter = PreSplitter::Create(spec.pre);
  if (!splitter) return Fail(std::move(splitter.error()));
  Result<Vocabulary> vocabulary = Vocabulary::Create(spec);
  if (!vocabulary) return Fail(std::move(vocabulary.error()));
  return std::make_unique<ByteLevelBpe>(std::move(*vocabulary), std::move(*splitter));
}

}  // namespace

const TextModelFamily kByteLevelBpe = {
    .model = "gpt2", .name = "byte-level BPE", .read = &Read, .create = &Create};

}  // namespace tilewright
