#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewright/synth.h"

namespace tilewright::synth {

/// A byte-level BPE vocabulary. Every token is a special one, one of the 256 bytes, or made by
/// exactly one merge.
struct Vocabulary {
  std::vector<std::string> tokens;  ///< in the GPT-2 spelling: each byte is one printable character
  std::vector<std::int32_t> types;  ///< GGUF token types: 1 normal, 3 control
  std::vector<std::string> merges;  ///< "left right", first ones first
  std::string_view pre;             ///< name of the pre-tokenizer
  std::uint32_t bos = 0;
  std::uint32_t eos = 0;
  bool add_bos = false;
};

/// Sizes that MakeVocabulary can serve, both included.
struct VocabularyLimits {
  int least;
  int most;
};
VocabularyLimits LimitsOf(SynthVocab style);

/// `size` tokens; must be within the limits. Merges are pairs of printable ASCII characters in the
/// order of how common they are in English, then triples, so that text falls into pieces of two or
/// three characters.
Vocabulary MakeVocabulary(SynthVocab style, int size);

}  // namespace tilewright::synth
