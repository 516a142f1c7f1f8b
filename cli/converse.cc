#include "converse.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "console.h"
#include "generation.h"
#include "report.h"

namespace tilewright::cli {
namespace {

/// Lines of standard input. A signal ends the waiting: Interrupted() then says so.
class Lines {
 public:
  /// The next line without its end; nothing at the end of the input, or after a signal.
  std::optional<std::string> Next() {
    while (true) {
      const std::size_t end = held_.find('\n');
      if (end != std::string::npos) {
        std::string line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return line;
      }
      char buffer[4096];
      const ssize_t got = Interrupted() ? 0 : ::read(STDIN_FILENO, buffer, sizeof(buffer));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      held_.append(buffer, static_cast<std::size_t>(got));
    }
    if (held_.empty() || Interrupted()) return std::nullopt;
    return std::exchange(held_, {});
  }

 private:
  std::string held_;
};

/// A conversation with a model whose KV cache holds what was said so far.
class Conversation {
 public:
  Conversation(const RunOptions& options, LoadedModel& loaded, const Tokenizer& tokenizer,
               ChatTemplate chat_template)
      : options_(options),
        loaded_(loaded),
        tokenizer_(tokenizer),
        template_(std::move(chat_template)),
        messages_(FirstMessages(options)) {}

  /// Forgets everything but the system message.
  void Restart() { messages_ = FirstMessages(options_); }

  /// Answers `text`. What fails because of the message leaves the conversation as it was.
  Status Answer(std::string text) {
    messages_.push_back({"user", std::move(text)});
    Status answered = AnswerLast();
    if (!answered) messages_.pop_back();
    return answered;
  }

 private:
  Status AnswerLast() {
    Result<std::vector<TokenId>> prompt = template_.Encode(tokenizer_, messages_, chat_);
    if (!prompt) return Fail(prompt.error());
    if (prompt->size() >= static_cast<std::size_t>(loaded_.session->context())) {
      return Fail(ErrorCode::kExhausted,
                  fmt::format("the conversation has {} tokens, but the context holds {}: start "
                              "anew with /clear, or raise -c",
                              prompt->size(), loaded_.session->context()));
    }
    Printer printer(&tokenizer_, options_.common.json, *loaded_.compiling);
    GenerateOptions generate = MakeGenerateOptions(options_, printer);
    generate.cached_tokens = CommonPrefix(held_, *prompt);
    // Until the pass has run nothing is known to be held.
    held_.clear();
    Result<GenerateResult> result =
        tilewright::Generate(*loaded_.session, *prompt, tokenizer_.end_of_generation(), generate);
    printer.End(!result);
    if (!result) return Fail(result.error());
    held_ = std::move(*prompt);
    held_.insert(held_.end(), result->tokens.begin(), result->tokens.end());
    // The last token was fed only where the model, asked for another, ended its turn.
    if (result->reason != StopReason::kEndOfText && !result->tokens.empty()) held_.pop_back();
    messages_.push_back({"assistant", printer.text()});
    Tell(*result);
    return FlushOutput();
  }

  void Tell(const GenerateResult& result) {
    if (options_.common.json) {
      Report report;
      report.Set("text", messages_.back().content)
          .Set("prompt_tokens", result.prompt_tokens)
          .Set("cached_tokens", result.cached_tokens)
          .Set("generated_tokens", std::span<const std::int32_t>(result.tokens))
          .Set("stop", StopReasonName(result.reason))
          .Set("first_token_ms", result.first_token_seconds * 1e3)
          .Set("decode_tok_s", result.decode_tokens_per_second());
      Out(report.Text() + "\n");
    }
    if (result.reason == StopReason::kContextFull) {
      Note(fmt::format("stopped: the context of {} positions is full; start anew with /clear",
                       loaded_.session->context()));
    }
    if (options_.verbose) NoteSpeeds(loaded_, result);
  }

  const RunOptions& options_;
  LoadedModel& loaded_;
  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  ChatOptions chat_;  // made once: a date in the prompt stays, and so does what the cache holds
  std::vector<ChatMessage> messages_;
  std::vector<TokenId> held_;  // tokens at the positions of the KV cache
};

/// Whether the conversation goes on after this error.
bool Continues(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kExhausted ||
         error.code == ErrorCode::kUnsupported;
}

}  // namespace

Result<ChatTemplate> OpenChatTemplate(const RunOptions& options, const Tokenizer& tokenizer) {
  Result<ChatTemplate> opened = ChatTemplate::FromTokenizer(tokenizer, options.chat_template);
  if (!opened) {
    return Fail(opened.error().code,
                fmt::format("{} (--chat-template NAME)", opened.error().message));
  }
  if (!opened->warning().empty()) Warn(opened->warning());
  return opened;
}

std::vector<ChatMessage> FirstMessages(const RunOptions& options) {
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  return messages;
}

const char* ConflictWithInteractive(const RunOptions& options) {
  if (options.has_prompt || !options.tokens.empty() || !options.file.empty()) {
    return "--interactive reads messages from standard input: it goes without -p, -f and --tokens";
  }
  return options.logits ? "--interactive and --logits exclude each other" : nullptr;
}

int Converse(const RunOptions& options) {
  Result<LoadedModel> loaded = LoadModel(options.common, options.model);
  if (!loaded) return ExitFor(loaded.error());
  Result<Tokenizer> tokenizer = Tokenizer::FromGguf(loaded->model->file());
  if (!tokenizer) return ExitFor(tokenizer.error());
  Result<ChatTemplate> chat_template = OpenChatTemplate(options, *tokenizer);
  if (!chat_template) return ExitFor(chat_template.error());

  Conversation conversation(options, *loaded, *tokenizer, std::move(*chat_template));
  Lines lines;
  const bool asks = StderrIsTerminal() && ::isatty(STDIN_FILENO) == 1;
  if (asks) Note("an empty line is skipped; /clear forgets the conversation; Ctrl-D ends it");
  while (true) {
    if (asks) Err("> ");
    const std::optional<std::string> line = lines.Next();
    if (!line) break;
    if (line->empty()) continue;
    if (*line == "/clear") {
      conversation.Restart();
      continue;
    }
    const Status answered = conversation.Answer(*line);
    if (Interrupted()) break;
    if (answered) continue;
    if (!Continues(answered.error())) return Finish(ExitFor(answered.error()));
    Complain(answered.error().message);
  }
  const int flushed = Finish(kExitOk);
  loaded->compiling->Summarise(options.model.path);
  return Interrupted() ? ExitInterrupted() : flushed;
}

}  // namespace tilewright::cli
