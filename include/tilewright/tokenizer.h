#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"

namespace tilewright {

class GgufFile;

using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;

/// The kind of a token, numbered as in `tokenizer.ggml.token_type` of a GGUF file.
enum class TokenType : std::int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  /// Structure, such as an end of turn: recognised in text and shown in output only on request.
  kControl = 3,
  kUserDefined = 4,  ///< always recognised in text and always shown, verbatim
  kUnused = 5,
  kByte = 6,  ///< "<0x41>": one byte
};

/// Everything a tokenizer is made from. The views must be valid only until Tokenizer::Create
/// returns.
struct TokenizerSpec {
  /// By id. Normal ones are spelled in GPT-2's byte alphabet ("Ġthe") or as in SentencePiece
  /// ("▁the").
  std::vector<std::string_view> tokens;
  std::vector<std::int32_t> token_types;  ///< a TokenType for each token; empty: all normal
  std::vector<std::string_view> merges;   ///< byte-level BPE: "left right", highest priority first
  std::vector<float> scores;  ///< SentencePiece: one for each token; higher ones go first
  /// `tokenizer.ggml.model`: the family; "gpt2" is byte-level BPE, "llama" SentencePiece BPE.
  std::string model = "gpt2";
  std::string pre;  ///< `tokenizer.ggml.pre`: how byte-level BPE splits text before merging
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId eot = kNoToken;
  TokenId eom = kNoToken;
  TokenId unk = kNoToken;
  TokenId pad = kNoToken;
  /// Absent: yes for SentencePiece, Llama 3 and Tekken, else no.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;  ///< absent: no
  /// Whether text is encoded as if a space preceded it. Absent: yes for SentencePiece. Byte-level
  /// BPE never does.
  std::optional<bool> add_space_prefix;
  /// SentencePiece: spaces at the ends of text are dropped and several in a row count as one.
  bool remove_extra_whitespaces = false;
  /// White space after special tokens is dropped, but for <unk>, <s> and <|endoftext|>. In a file,
  /// `general.name` contains "phi-3" or "phi3": llama.cpp goes by that name.
  bool strip_after_special = false;
  std::string chat_template;  ///< Jinja source, or empty
};

/// Reads the keys `tokenizer.*` of a GGUF file. The views point into the file's mapping. Errors
/// name the key: kNotFound if model, tokens, or what its family needs (pre and merges, or scores)
/// is missing; kCorrupt for a value of the wrong type, and if there are not as many tokens as
/// token_embd.weight has rows; kUnsupported for an unknown model, listing the known ones.
Result<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file);

struct EncodeOptions {
  bool add_special = true;  ///< add BOS in front and EOS at the end, if the vocabulary says so
  /// "<|im_end|>" in the text is that token; if false, only user-defined tokens are recognised.
  bool parse_special = true;
};

/// Byte-level or SentencePiece BPE that produces the same ids as llama.cpp.
///
/// Text is bytes. In byte-level BPE each byte that is not part of well-formed UTF-8 counts as
/// U+FFFD (three bytes); overlong encodings are shortened first, surrogates are kept as they are.
/// Bytes that a vocabulary lacks are dropped, as in llama.cpp. In SentencePiece, characters that
/// the vocabulary lacks and bytes that are no characters become byte tokens ("<0xE2>"): none is
/// lost.
///
/// Special tokens are recognised in the raw text before anything else: longer ones first, then from
/// left to right; of two with the same length, the one with the lower id first.
///
/// Threads: const functions may be called from any number of threads; the object may be moved but
/// not copied.
class Tokenizer {
 public:
  /// Copies what it needs from `spec`. Takes about 10 ms for 49k tokens, 40 ms for 128k. Errors:
  /// kUnsupported (model or pre unknown: the message lists the known ones), kCorrupt (lengths that
  /// disagree, ids or token types out of range, a duplicate token, a merge that is not a pair of
  /// tokens or whose result is not a token, a score that is not a number, a byte for which
  /// SentencePiece has no token; the message names the key and the index).
  static Result<Tokenizer> Create(const TokenizerSpec& spec);
  /// TokenizerSpecFromGguf and Create.
  static Result<Tokenizer> FromGguf(const GgufFile& file);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids of `text`, in O(n log n) at most. Errors: kInvalidArgument for texts over 1 GiB; kInternal
  /// if PCRE2 fails, with its message.
  Result<std::vector<TokenId>> Encode(std::string_view text, EncodeOptions options = {}) const;

  /// The exact bytes of `ids`, not necessarily valid UTF-8, since a character may span several
  /// tokens. `special`: whether control and unknown tokens are spelled out or omitted. The space
  /// that Encode adds where the vocabulary says so, at the start and after special tokens, is left
  /// out again: the ids of a whole text give that text, those of a continuation are for
  /// StreamDecoder. Error: kInvalidArgument for an id out of range.
  Result<std::string> Decode(std::span<const TokenId> ids, bool special = false) const;
  /// Appends the bytes of one token to `out`, with every space.
  Status AppendPiece(TokenId id, bool special, std::string& out) const;

  int vocab_size() const;
  TokenId bos() const;
  TokenId eos() const;
  TokenId eot() const;
  TokenId unk() const;
  TokenId pad() const;
  bool add_bos() const;
  bool add_eos() const;
  /// `tokenizer.ggml.pre`.
  std::string_view pre() const;
  /// `tokenizer.chat_template`, or empty. See chat.h.
  std::string_view chat_template() const;
  /// kUndefined for an id out of range. A token whose text is an end of turn ("<|im_end|>") is
  /// kControl, whatever the file says.
  TokenType type(TokenId id) const;
  /// The token's text as the file spells it; empty for an id out of range.
  std::string_view text(TokenId id) const;
  /// The id of a token by its spelling in the file, or kNoToken.
  TokenId Find(std::string_view text) const;
  /// Whether generation stops at this token: EOS, end of turn, end of message, and tokens whose
  /// names are known to mean that.
  bool IsEndOfGeneration(TokenId id) const;
  /// All tokens at which generation stops, ascending.
  std::span<const TokenId> end_of_generation() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// Turns a stream of tokens, the continuation of a text, into text piece by piece and never emits
/// part of a character: bytes that may still become one are held back. A space that a token begins
/// with stays. Its output is always well-formed UTF-8: bytes that cannot be part of a character
/// become U+FFFD, one for each maximal prefix of a character, as in browsers. One thread at a time.
/// The tokenizer must outlive it.
class StreamDecoder {
 public:
  /// `special`: whether control and unknown tokens are spelled out or omitted.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false)
      : tokenizer_(&tokenizer), special_(special) {}

  /// The text that this token completes; empty while a character is incomplete. Error: as
  /// Tokenizer::Decode.
  Result<std::string> Push(TokenId id);
  /// Ends the stream: returns U+FFFD if a character was incomplete, else "". The decoder can then
  /// be used for another stream.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string held_;  // at most three bytes between calls
};

}  // namespace tilewright
