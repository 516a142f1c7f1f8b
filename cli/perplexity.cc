#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "console.h"
#include "report.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

struct Text {
  std::vector<TokenId> tokens;
  ScoringOptions scoring;
};

Result<Text> TokenizeText(const PerplexityOptions& options, const GgufFile& file,
                          const std::string& text) {
  Result<Tokenizer> tokenizer = Tokenizer::FromGguf(file);
  if (!tokenizer) return Fail(tokenizer.error());
  Result<std::vector<TokenId>> tokens = tokenizer->Encode(text, {.parse_special = false});
  if (!tokens) return Fail(tokens.error());
  Text result{.tokens = std::move(*tokens), .scoring = {.window = options.window}};
  result.scoring.second_half_only = options.score == "second-half";
  if (result.scoring.second_half_only && tokenizer->add_bos()) {
    result.scoring.bos = tokenizer->bos();
  }
  if (result.scoring.second_half_only &&
      result.tokens.size() < static_cast<std::size_t>(options.window)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} tokens, less than one window of {}: choose a smaller "
                            "--window, or --score all",
                            result.tokens.size(), options.window));
  }
  return result;
}

Report ReportOf(const PerplexityResult& result) {
  Report report;
  report.Set("tokens", result.tokens)
      .Set("nll_mean", result.nll_mean)
      .Set("nll_error", result.nll_error)
      .Set("perplexity", result.perplexity)
      .Set("perplexity_error", result.perplexity * result.nll_error);
  return report;
}

std::string Line(const PerplexityResult& result) {
  return fmt::format("perplexity {:.4f} +- {:.4f} over {} tokens (nll {:.5f} per token",
                     result.perplexity, result.perplexity * result.nll_error, result.tokens,
                     result.nll_mean);
}

void PrintJson(const PerplexityOptions& options, const PerplexityResult& result,
               const DivergenceResult* compared, double rate) {
  Report report = ReportOf(result);
  report.Set("window", options.window).Set("score", options.score).Set("tok_s", rate);
  if (compared != nullptr) {
    Report against = ReportOf(compared->base);
    against.Set("log_ratio", compared->log_ratio)
        .Set("log_ratio_error", compared->log_ratio_error)
        .Set("kl_mean", compared->kl_mean)
        .Set("kl_error", compared->kl_error)
        .Set("kl_median", compared->kl_median)
        .Set("kl_p99", compared->kl_p99)
        .Set("kl_max", compared->kl_max)
        .Set("same_top", compared->same_top)
        .Set("same_top_error", compared->same_top_error);
    report.Set("against", std::move(against));
  }
  Out(report.Text() + "\n");
}

void PrintText(const PerplexityOptions& options, const PerplexityResult& result,
               const DivergenceResult* compared, double rate) {
  Out(fmt::format("{}, window {}, {:.0f} tok/s)\n", Line(result), options.window, rate));
  if (compared == nullptr) return;
  const double ratio = std::exp(compared->log_ratio);
  Out(fmt::format("against {}: {})\n", options.against, Line(compared->base)));
  Out(fmt::format("ratio {:.5f} +- {:.5f}\n", ratio, ratio * compared->log_ratio_error));
  Out(fmt::format("KL divergence mean {:.6f} +- {:.6f}, median {:.6f}, 99 % {:.6f}, max {:.6f}\n",
                  compared->kl_mean, compared->kl_error, compared->kl_median, compared->kl_p99,
                  compared->kl_max));
  Out(fmt::format("same best token {:.3f} +- {:.3f} %\n", 100 * compared->same_top,
                  100 * compared->same_top_error));
}

Result<LoadedModel> LoadBase(const PerplexityOptions& options) {
  ModelArguments model = options.model;
  model.path = options.against;
  return LoadModel(options.common, model);
}

/// Ids must mean the same in both.
Status CheckSameTokens(const Text& text, const Text& base) {
  if (text.tokens == base.tokens) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "the models tokenize the text differently, so they cannot be compared");
}

}  // namespace

int RunPerplexity(const PerplexityOptions& options) {
  Result<std::string> text = ReadFile(options.file);
  if (!text) return ExitFor(text.error());
  Result<LoadedModel> loaded = LoadModel(options.common, options.model);
  if (!loaded) return ExitFor(loaded.error());
  Result<Text> scored = TokenizeText(options, loaded->model->file(), *text);
  if (!scored) return ExitFor(scored.error());
  std::optional<LoadedModel> base;
  if (!options.against.empty()) {
    Result<LoadedModel> opened = LoadBase(options);
    if (!opened) return ExitFor(opened.error());
    base = std::move(*opened);
    Result<Text> same = TokenizeText(options, base->model->file(), *text);
    if (!same) return ExitFor(same.error());
    if (Status equal = CheckSameTokens(*scored, *same); !equal) return ExitFor(equal.error());
  }

  const auto start = std::chrono::steady_clock::now();
  std::optional<DivergenceResult> compared;
  Result<PerplexityResult> result = [&]() -> Result<PerplexityResult> {
    Progress bar("perplexity");
    const std::function<bool(double)> progress = [&](double fraction) {
      bar.Show(fraction);
      return !Interrupted().load();
    };
    if (!base) return Perplexity(*loaded->session, scored->tokens, scored->scoring, progress);
    Result<DivergenceResult> both =
        CompareModels(*loaded->session, *base->session, scored->tokens, scored->scoring, progress);
    if (!both) return Fail(both.error());
    compared = *both;
    return both->own;
  }();
  if (!result) return ExitFor(result.error());
  loaded->compiling->Summarise(options.model.path);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const double rate = static_cast<double>(scored->tokens.size()) / took.count();
  const DivergenceResult* divergence = compared ? &*compared : nullptr;
  if (options.common.json) {
    PrintJson(options, *result, divergence, rate);
  } else {
    PrintText(options, *result, divergence, rate);
  }
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
