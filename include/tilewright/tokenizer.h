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

/// What a token is. The numbers are those of `tokenizer.ggml.token_type` in a GGUF file.
enum class TokenType : std::int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,  ///< structure, such as an end of turn: found in text only if asked for, hidden in
                 ///< output unless asked for
  kUserDefined = 4,  ///< always found in text and always shown, letter for letter
  kUnused = 5,
  kByte = 6,  ///< "<0x41>": one byte
};

/// Everything a tokenizer is made from. The views need to live only until Tokenizer::Create
/// returns.
struct TokenizerSpec {
  std::vector<std::string_view>
      tokens;  ///< by id; normal tokens in the byte alphabet of GPT-2 ("Ġthe")
  std::vector<std::int32_t> token_types;  ///< a TokenType for each token; empty: all normal
  std::vector<std::string_view> merges;   ///< "left right", the best first
  std::string model = "gpt2";  ///< `tokenizer.ggml.model`: the family; "gpt2" is byte-level BPE
  std::string pre;             ///< `tokenizer.ggml.pre`: how text is split before merging
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId eot = kNoToken;
  TokenId eom = kNoToken;
  TokenId unk = kNoToken;
  TokenId pad = kNoToken;
  std::optional<bool>
      add_bos;  ///< absent: what the pre-tokenizer's family does (Llama-3: yes, others: no)
  std::optional<bool> add_eos;  ///< absent: no
  bool add_space_prefix =
      false;  ///< recorded only: byte-level BPE adds no space, whatever the file says
  std::string chat_template;  ///< Jinja source, or empty
};

/// Reads the keys `tokenizer.*` of a GGUF file. Views point into the file's mapping.
/// Errors name the key: kNotFound for tokens, merges, model or pre; kCorrupt for a value of the
/// wrong type; kUnsupported for a model that is not known, with the list of those that are.
Result<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file);

struct EncodeOptions {
  bool add_special = true;    ///< put BOS in front and EOS behind, where the vocabulary says so
  bool parse_special = true;  ///< "<|im_end|>" in the text is that token; off: only user-defined
                              ///< tokens are recognised
};

/// Byte-level BPE with the ids that llama.cpp gives.
///
/// Text is bytes. Each byte that is not part of well-formed UTF-8 counts as U+FFFD (three bytes);
/// overlong forms of characters are shortened first, surrogates are kept as they are. Bytes that a
/// vocabulary lacks are dropped, as llama.cpp does.
///
/// Special tokens are searched for in the raw text before anything else: longer ones first, then
/// from left to right; of two of one length the lower id goes first.
///
/// Threads: const functions may be called from any number of threads; the object may be moved but
/// not copied.
class Tokenizer {
 public:
  /// Copies what it needs out of `spec`. About 10 ms for 49k tokens, 40 ms for 128k.
  /// Errors: kUnsupported (model or pre unknown: the message lists what is known), kCorrupt
  /// (lengths that disagree, ids out of range, a token twice, a merge that is no pair of tokens or
  /// leads to no token; the message names the key and the index).
  static Result<Tokenizer> Create(const TokenizerSpec& spec);
  /// TokenizerSpecFromGguf and Create.
  static Result<Tokenizer> FromGguf(const GgufFile& file);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids of `text`, in O(n log n). Errors: kInvalidArgument for texts over 1 GiB; kInternal if
  /// PCRE2 fails, with its message.
  Result<std::vector<TokenId>> Encode(std::string_view text, EncodeOptions options = {}) const;

  /// The bytes of `ids`, exactly: not necessarily UTF-8, since one character may be spread over
  /// several tokens. `special`: whether control and unknown tokens are spelled out or left out.
  /// Error: kInvalidArgument for an id out of range.
  Result<std::string> Decode(std::span<const TokenId> ids, bool special = false) const;
  /// Appends the bytes of one token to `out`; as Decode.
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
  /// kUndefined for an id out of range. A token that looks like an end of turn ("<|im_end|>") is
  /// kControl whatever the file says.
  TokenType type(TokenId id) const;
  /// The token's text as the file spells it; empty for an id out of range.
  std::string_view text(TokenId id) const;
  /// The id of a token by its spelling in the file, or kNoToken.
  TokenId Find(std::string_view text) const;
  /// Whether generation stops at this token: EOS, end of turn, end of message, and tokens known to
  /// mean that by their names.
  bool IsEndOfGeneration(TokenId id) const;
  /// All of them, ascending.
  std::span<const TokenId> end_of_generation() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// Turns a stream of tokens into text piece by piece and never emits part of a character: bytes
/// that may still become one are held back. What it emits is always well-formed UTF-8: bytes that
/// can belong to no character become U+FFFD, one for each longest prefix of a character, as
/// browsers do. One thread at a time. The tokenizer must outlive it.
class StreamDecoder {
 public:
  /// `special`: whether control and unknown tokens are spelled out or left out.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false)
      : tokenizer_(&tokenizer), special_(special) {}

  /// Text that is complete with this token; often empty in the middle of a character. Error: as
  /// Tokenizer::Decode.
  Result<std::string> Push(TokenId id);
  /// The end of the stream: U+FFFD if a character was begun and not finished, else empty. The
  /// decoder starts afresh.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string held_;  // at most three bytes between calls
};

}  // namespace tilewright
