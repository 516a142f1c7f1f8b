#include "generation.h"

#include <fmt/format.h>

#include <random>

#include "console.h"

namespace tilewright::cli {

Printer::Printer(const Tokenizer* tokenizer, bool quiet, CompileLine& compiling)
    : quiet_(quiet), compiling_(compiling) {
  if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
}

bool Printer::Push(TokenId token) {
  if (decoder_) {
    Result<std::string> piece = decoder_->Push(token);
    return piece && Emit(*piece);
  }
  return Emit(fmt::format("{}{}", text_.empty() ? "" : " ", token));
}

void Printer::End(bool failed) {
  if (decoder_) Emit(decoder_->Flush());
  if (!quiet_ && !(failed && text_.empty())) Out("\n");
}

bool Printer::Emit(std::string_view piece) {
  text_ += piece;
  compiling_.Clear();
  if (quiet_ || piece.empty()) return true;
  Out(piece);
  return FlushOutput().has_value();
}

GenerateOptions MakeGenerateOptions(const RunOptions& options, Printer& printer) {
  GenerateOptions generate;
  generate.max_tokens = options.count;
  generate.ignore_end_of_text = options.ignore_end;
  generate.cancel = &Interrupted();
  generate.on_token = [&printer](TokenId token) { return printer.Push(token); };
  SamplerOptions& sampler = generate.sampler;
  sampler.temperature = options.temperature;
  sampler.top_k = options.top_k;
  sampler.top_p = options.top_p;
  sampler.min_p = options.min_p;
  sampler.repeat_penalty = options.repeat_penalty;
  sampler.repeat_window = options.repeat_window;
  sampler.seed = options.seed_given ? options.seed : std::random_device{}();
  return generate;
}

void NoteSpeeds(const LoadedModel& loaded, const GenerateResult& result) {
  Err(fmt::format(
      "load {:.0f} ms | prompt {} tokens, {:.0f} tok/s | first token {:.1f} ms | {} tokens, "
      "{:.1f} tok/s | {}, {} threads | stopped: {}\n",
      loaded.load_ms, result.prompt_tokens, result.prompt_tokens_per_second(),
      result.first_token_seconds * 1e3, result.tokens.size(), result.decode_tokens_per_second(),
      loaded.context->device_name(), loaded.context->executor().workers(),
      StopReasonName(result.reason)));
}

}  // namespace tilewright::cli
