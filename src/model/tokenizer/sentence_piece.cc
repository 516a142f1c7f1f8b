// SentencePiece BPE: Llama 1 and 2, Mistral up to 0.3, Mixtral, Gemma, Phi-3, TinyLlama.
#include <utility>

#include "model/tokenizer/piece_merger.h"
#include "model/tokenizer/scored_pieces.h"
#include "model/tokenizer/text_model.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, how tokens spell a space

class SentencePieceBpe final : public TextModel {
 public:
  SentencePieceBpe(Vocabulary vocabulary, ScoredPieces pieces, const TokenizerSpec& spec)
      : TextModel(std::move(vocabulary)),
        pieces_(std::move(pieces)),
        space_prefix_(spec.add_space_prefix.value_or(true)),
        single_spaces_(spec.remove_extra_whitespaces) {}

  bool adds_bos() const override { return true; }
  bool adds_space_prefix() const override { return space_prefix_; }
  std::unique_ptr<Encoder> MakeEncoder() const override;
  void AppendBytes(std::string_view spelling, std::string& out) const override;

  const ScoredPieces& pieces() const { return pieces_; }
  bool single_spaces() const { return single_spaces_; }

 private:
  ScoredPieces pieces_;
  bool space_prefix_;
  bool single_spaces_;
};

class PieceEncoder final : public TextModel::Encoder {
 public:
  explicit PieceEncoder(const SentencePieceBpe& model)
      : model_(model), merger_(model.vocabulary(), model.pieces()) {}

  Status Encode(std::string_view text, std::vector<TokenId>& out) override {
    if (model_.single_spaces()) text = SingleSpaces(text);
    if (text.empty()) return {};
    escaped_.clear();
    if (model_.adds_space_prefix()) escaped_.append(kSpace);
    while (true) {
      const std::size_t space = text.find(' ');
      escaped_.append(text.substr(0, space));
      if (space == std::string_view::npos) break;
      escaped_.append(kSpace);
      text.remove_prefix(space + 1);
    }
    merger_.Encode(escaped_, out);
    return {};
  }

 private:
  /// `text` without spaces at its ends and with one where it has several. The view points into it
  /// or into single_.
  std::string_view SingleSpaces(std::string_view text) {
    const std::size_t first = text.find_first_not_of(' ');
    if (first == std::string_view::npos) return {};
    text = text.substr(first, text.find_last_not_of(' ') - first + 1);
    if (text.find("  ") == std::string_view::npos) return text;
    single_.clear();
    for (const char c : text) {
      if (c != ' ' || single_.back() != ' ') single_.push_back(c);
    }
    return single_;
  }

  const SentencePieceBpe& model_;
  PieceMerger merger_;
  std::string escaped_;
  std::string single_;
};

std::unique_ptr<TextModel::Encoder> SentencePieceBpe::MakeEncoder() const {
  return std::make_unique<PieceEncoder>(*this);
}

void SentencePieceBpe::AppendBytes(std::string_view spelling, std::string& out) const {
  while (true) {
    const std::size_t space = spelling.find(kSpace);
    out.append(spelling.substr(0, space));
    if (space == std::string_view::npos) return;
    out.push_back(' ');
    spelling.remove_prefix(space + kSpace.size());
  }
}

Status Read(const GgufFile& file, TokenizerSpec& spec) {
  auto scores = file.F32s("tokenizer.ggml.scores");
  if (!scores) return Fail(std::move(scores.error()));
  spec.scores = std::move(*scores);
  constexpr std::string_view kRemove = "tokenizer.ggml.remove_extra_whitespaces";
  Result<bool> remove = file.Bool(kRemove);
  if (remove) {
    spec.remove_extra_whitespaces = *remove;
  } else if (file.Has(kRemove)) {
    return Fail(std::move(remove.error()));
  }
  return {};
}

Result<std::unique_ptr<TextModel>> Create(const TokenizerSpec& spec) {
  Result<Vocabulary> vocabulary = Vocabulary::Create(spec);
  if (!vocabulary) return Fail(std::move(vocabulary.error()));
  Result<ScoredPieces> pieces = ScoredPieces::Create(*vocabulary, spec.scores);
  if (!pieces) return Fail(std::move(pieces.error()));
  return std::make_unique<SentencePieceBpe>(std::move(*vocabulary), std::move(*pieces), spec);
}

}  // namespace

const TextModelFamily kSentencePiece = {.model = "llama",
                                        .name = "SentencePiece BPE",
                                        .read = &Read,
                                        .create = &Create,
                                        .bos = 1,
                                        .eos = 2,
                                        .unk = 0};

}  // namespace tilewright
