#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewright/synth.h"

namespace tilewright::synth {

/// A byte-level BPE vocabulary. Every token is a special token, one of the 256 bytes, or the result
/// of exactly one merge.
struct Vocabulary {
  std::vector<std::string> tokens;  ///< in the GPT-2 spelling: each byte is one printable character
  std::vector<std::int32_t> types;  ///< GGUF token types: 1 normal, 3 control
  std::vector<std::string> merges;  ///< "left right", first ones first
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
/// split into pieces of two or three characters.
Vocabulary MakeVocabulary(SynthVocab style, int size);

}  // namespace tilewright::synth
