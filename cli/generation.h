#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common.h"
#include "verbs.h"

namespace tilewright::cli {

/// Prints text as it is generated, and keeps it.
class Printer {
 public:
  /// Without a tokenizer, which must outlive this, tokens are printed as numbers; `quiet`: nothing
  /// is printed.
  Printer(const Tokenizer* tokenizer, bool quiet, CompileLine& compiling);

  /// False if standard output cannot be written any more.
  bool Push(TokenId token);
  /// Ends the line, unless the generation failed before there was one.
  void End(bool failed);
  const std::string& text() const { return text_; }

 private:
  bool Emit(std::string_view piece);

  bool quiet_;
  CompileLine& compiling_;
  std::optional<StreamDecoder> decoder_;
  std::string text_;
};

/// Sampling and limits as the options say; `printer` gets the tokens.
GenerateOptions MakeGenerateOptions(const RunOptions& options, Printer& printer);

/// The line with speeds on standard error.
void NoteSpeeds(const LoadedModel& loaded, const GenerateResult& result);

}  // namespace tilewright::cli
