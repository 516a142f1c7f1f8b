#include <fmt/format.h>

#include <chrono>

#include "console.h"
#include "report.h"
#include "verbs.h"

namespace tilewright::cli {

int RunPerplexity(const PerplexityOptions& options) {
  Result<std::string> text = ReadFile(options.file);
  if (!text) return ExitFor(text.error());
  Result<LoadedModel> loaded = LoadModel(options.common, options.model);
  if (!loaded) return ExitFor(loaded.error());
  Result<Tokenizer> tokenizer = Tokenizer::FromGguf(loaded->model->file());
  if (!tokenizer) return ExitFor(tokenizer.error());
  Result<std::vector<TokenId>> tokens = tokenizer->Encode(*text);
  if (!tokens) return ExitFor(tokens.error());

  const auto start = std::chrono::steady_clock::now();
  Result<PerplexityResult> result = [&] {
    Progress bar("perplexity");
    return Perplexity(*loaded->session, *tokens, options.window, [&](double fraction) {
      bar.Show(fraction);
      return !Interrupted().load();
    });
  }();
  if (!result) return ExitFor(result.error());
  loaded->compiling->Summarise(options.model.path);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const double rate = static_cast<double>(result->tokens) / took.count();
  if (options.common.json) {
    Report report;
    report.Set("tokens", result->tokens)
        .Set("nll_mean", result->nll_mean)
        .Set("perplexity", result->perplexity)
        .Set("window", options.window)
        .Set("tok_s", rate);
    Out(report.Text() + "\n");
  } else {
    Out(fmt::format(
        "perplexity {:.4f} over {} tokens (nll {:.5f} per token, window {}, {:.0f} tok/s)\n",
        result->perplexity, result->tokens, result->nll_mean, options.window, rate));
  }
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
