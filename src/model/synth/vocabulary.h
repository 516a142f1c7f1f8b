#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewright/synth.h"

namespace tilewright::synth {

/// A vocabulary. In byte-level BPE every token is a special token, one of the 256 bytes, or the
/// result of exactly one merge; in SentencePiece a special token, a byte, a character, or two
/// tokens side by side.
struct Vocabulary {
  std::string_view model;           ///< `tokenizer.ggml.model`: "gpt2" or "llama"
  std::vector<std::string> tokens;  ///< as the model spells them
  std::vector<std::int32_t> types;  ///< GGUF token types: 1 normal, 2 unknown, 3 control, 6 byte
  std::vector<std::string> merges;  ///< byte-level BPE: "left right", first ones first
  std::vector<float> scores;        ///< SentencePiece: one for each token
  std::string_view pre;             ///< name of the pre-tokenizer
  std::uint32_t bos = 0;
  std::uint32_t eos = 0;
  bool add_bos = false;
};

/// The range of sizes that MakeVocabulary supports, inclusive.
struct VocabularyLimits {
  int least;
  int most;
};
VocabularyLimits LimitsOf(SynthVocab style);

/// Makes a vocabulary of `size` tokens, which must be within the limits. Merges are pairs of
/// printable ASCII characters, by how common they are in English, then triples, so that text is
/// split into pieces of two or three characters. In SentencePiece, a space only begins a piece.
Vocabulary MakeVocabulary(SynthVocab style, int size);

}  // namespace tilewright::synth
