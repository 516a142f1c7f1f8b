#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer/vocabulary.h"
#include "tilewright/result.h"

namespace tilewright {

/// How a family of vocabularies converts between text and tokens. Tokenizer handles special tokens,
/// BOS and EOS. Const once the tokenizer is made; any number of threads.
class TextModel {
 public:
  virtual ~TextModel() = default;
  Vocabulary& vocabulary() { return vocabulary_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Whether BOS is added if the file does not say.
  virtual bool adds_bos() const = 0;
  /// Whether text is encoded as if a space preceded it, at the start and after special tokens.
  virtual bool adds_space_prefix() const { return false; }

  /// Converts pieces of a text to tokens, with scratch memory that is reused from piece to piece.
  /// One thread at a time.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    /// Appends the tokens of `text`, which contains no special tokens. What precedes it is the
    /// start of the whole text or a special token.
    virtual Status Encode(std::string_view text, std::vector<TokenId>& out) = 0;
  };
  virtual std::unique_ptr<Encoder> MakeEncoder() const = 0;

  /// Appends the bytes that a normal token represents, given its spelling in the file.
  virtual void AppendBytes(std::string_view spelling, std::string& out) const = 0;

 protected:
  explicit TextModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  Vocabulary vocabulary_;
};

/// A family, named by `tokenizer.ggml.model`.
struct TextModelFamily {
  std::string_view model;
  std::string_view name;
  /// Reads the keys that are specific to this family.
  Status (*read)(const GgufFile& file, TokenizerSpec& spec);
  /// Errors as Tokenizer::Create.
  Result<std::unique_ptr<TextModel>> (*create)(const TokenizerSpec& spec);
  // Ids of the tokens that a file does not name, where the vocabulary has them.
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId unk = kNoToken;
};

/// kUnsupported names `model` and lists the known families.
Result<const TextModelFamily*> FindTextModel(std::string_view model);

// Each family has one file; text_models.cc lists them.
extern const TextModelFamily kByteLevelBpe;
extern const TextModelFamily kSentencePiece;

}  // namespace tilewright
