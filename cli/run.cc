#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "console.h"
#include "converse.h"
#include "generation.h"
#include "report.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// The input of the model, and the tokenizer that turns its tokens into text (absent if the file's
/// tokenizer is missing or unknown and the prompt is given as tokens).
struct Prompt {
  std::vector<TokenId> tokens;
  std::optional<Tokenizer> tokenizer;
};

Result<std::vector<TokenId>> EncodeChat(const RunOptions& options, const Tokenizer& tokenizer,
                                        const std::string& text) {
  Result<ChatTemplate> form = OpenChatTemplate(options, tokenizer);
  if (!form) return Fail(form.error());
  std::vector<ChatMessage> messages = FirstMessages(options);
  messages.push_back({"user", text});
  return form->Encode(tokenizer, messages);
}

Result<Prompt> MakePrompt(const RunOptions& options, const std::string& text,
                          std::vector<TokenId> tokens, const GgufFile& file) {
  Prompt prompt;
  Result<Tokenizer> tokenizer = Tokenizer::FromGguf(file);
  if (!tokenizer) {
    if (options.tokens.empty()) {
      return Fail(tokenizer.error().code,
                  fmt::format("{} (--tokens 1,2,3 runs the model without its tokenizer)",
                              tokenizer.error().message));
    }
    Warn(fmt::format("tokens are printed as numbers: {}", tokenizer.error().message));
  } else {
    prompt.tokenizer = std::move(*tokenizer);
  }
  if (!options.tokens.empty()) {
    prompt.tokens = std::move(tokens);
    return prompt;
  }
  Result<std::vector<TokenId>> ids =
      options.chat ? EncodeChat(options, *prompt.tokenizer, text) : prompt.tokenizer->Encode(text);
  if (!ids) return Fail(ids.error());
  prompt.tokens = std::move(*ids);
  return prompt;
}

Status CheckLogits(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      return Fail(ErrorCode::kNumeric, fmt::format("the logit of token {} is {}", i,
                                                   std::isnan(logits[i]) ? "NaN" : "infinite"));
    }
  }
  return {};
}

void PrintJson(const LoadedModel& loaded, const Prompt& prompt, const GenerateResult& result,
               const std::string& text, std::uint64_t seed, std::span<const float> logits) {
  Report report;
  report.Set("prompt_tokens", std::span<const std::int32_t>(prompt.tokens))
      .Set("generated_tokens", std::span<const std::int32_t>(result.tokens))
      .Set("text", text)
      .Set("stop", StopReasonName(result.reason))
      .Set("load_ms", loaded.load_ms)
      .Set("first_token_ms", result.first_token_seconds * 1e3)
      .Set("prompt_tok_s", result.prompt_tokens_per_second())
      .Set("decode_tok_s", result.decode_tokens_per_second())
      .Set("device", loaded.context->device_name())
      .Set("device_class", loaded.context->device_spec().ClassId())
      .Set("threads", loaded.context->executor().workers())
      .Set("seed", static_cast<std::int64_t>(seed));
  if (!logits.empty()) report.Set("logits", logits);
  Out(report.Text() + "\n");
}

/// Prints the kernels chosen for the model's GEMMs, one line each, fewest rows first.
void NoteDecisions(const DeviceDispatch& dispatch) {
  Table table({"m", "n", "k", "weights", "kernel", "why"}, {false, false, false, true, true, true});
  for (const DecidedGemm& decided : dispatch.Decisions()) {
    const GemmDesc& d = decided.plan.problem();
    table.Row({fmt::format("{}", d.m), fmt::format("{}", d.n), fmt::format("{}", d.k),
               fmt::format("{} {}", DataTypeName(d.type_b), PackName(d.pack_b)),
               std::string(decided.plan.spec().kernel->name()), decided.why});
  }
  Err(table.Text());
}

/// Logits after the prompt's last token, copied.
Result<std::vector<float>> PromptLogits(Session& session, std::span<const TokenId> prompt) {
  if (prompt.empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (prompt.size() > static_cast<std::size_t>(session.context())) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the prompt has {} tokens, but the context holds {}", prompt.size(),
                            session.context()));
  }
  Result<std::span<const float>> logits = session.Prefill(prompt, 0, 0, &Interrupted());
  if (!logits) return Fail(logits.error());
  if (Status finite = CheckLogits(*logits); !finite) return Fail(finite.error());
  return std::vector<float>(logits->begin(), logits->end());
}

/// Sets the default of `options.count` for --logits alone: no tokens.
RunOptions WithDefaults(RunOptions options) {
  if (options.logits && !options.count_given) options.count = 0;
  return options;
}

int Generate(const RunOptions& options, LoadedModel& loaded, const Prompt& prompt) {
  std::vector<float> logits;
  if (options.logits) {
    Result<std::vector<float>> got = PromptLogits(*loaded.session, prompt.tokens);
    if (!got) return ExitFor(got.error());
    logits = std::move(*got);
  }
  Printer printer(prompt.tokenizer ? &*prompt.tokenizer : nullptr,
                  options.common.json || options.count == 0, *loaded.compiling);
  const GenerateOptions generate = MakeGenerateOptions(options, printer);
  Result<GenerateResult> result = tilewright::Generate(
      *loaded.session, prompt.tokens,
      prompt.tokenizer ? prompt.tokenizer->end_of_generation() : std::span<const TokenId>(),
      generate);
  printer.End(!result);
  if (!result) return Finish(ExitFor(result.error()));
  if (options.common.json) {
    PrintJson(loaded, prompt, *result, printer.text(), generate.sampler.seed, logits);
  } else {
    for (std::size_t i = 0; i < logits.size(); ++i) Out(fmt::format("{} {}\n", i, logits[i]));
  }
  const int flushed = Finish(kExitOk);
  if (result->reason == StopReason::kContextFull) {
    Note(fmt::format("stopped: the context of {} positions is full", loaded.session->context()));
  }
  loaded.compiling->Summarise(options.model.path);
  if (options.verbose) NoteDecisions(*loaded.dispatch);
  if (options.verbose || (StderrIsTerminal() && !options.common.json)) NoteSpeeds(loaded, *result);
  return Interrupted() ? ExitInterrupted() : flushed;
}

}  // namespace

int Run(const RunOptions& given) {
  const RunOptions options = WithDefaults(given);
  if (options.interactive) {
    const char* wrong = ConflictWithInteractive(options);
    return wrong != nullptr ? Usage(wrong, "run") : Converse(options);
  }
  const int sources = (options.has_prompt ? 1 : 0) + (options.tokens.empty() ? 0 : 1) +
                      (options.file.empty() ? 0 : 1);
  if (sources != 1) return Usage("give the prompt with exactly one of -p, -f and --tokens", "run");
  if (!options.chat && !(options.system.empty() && options.chat_template.empty())) {
    return Usage("--system and --chat-template require --chat or --interactive", "run");
  }
  if (options.chat && !options.tokens.empty()) {
    return Usage("--chat needs text, not --tokens", "run");
  }
  std::vector<TokenId> tokens;
  if (!options.tokens.empty()) {
    Result<std::vector<std::int32_t>> parsed = ParseIntegers(options.tokens, "--tokens");
    if (!parsed) return Usage(parsed.error().message, "run");
    tokens = std::move(*parsed);
  }
  std::string text = options.prompt;
  if (!options.file.empty()) {
    Result<std::string> read = ReadFile(options.file);
    if (!read) return ExitFor(read.error());
    text = std::move(*read);
  }
  Result<LoadedModel> loaded = LoadModel(options.common, options.model);
  if (!loaded) return ExitFor(loaded.error());
  Result<Prompt> prompt = MakePrompt(options, text, std::move(tokens), loaded->model->file());
  if (!prompt) return ExitFor(prompt.error());
  return Generate(options, *loaded, *prompt);
}

}  // namespace tilewright::cli
