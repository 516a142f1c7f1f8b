#include <algorithm>
#include <cmath>
#include <vector>

#include "core/text.h"
#include "model/generate/windows.h"

namespace tilewright {
namespace {

/// log softmax of logits: logits[i] - shift.
double LogSumExp(std::span<const float> logits, float max) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  return std::log(sum) + max;
}

/// What two models predict for one token.
struct Compared {
  double own_nll = 0, base_nll = 0, kl = 0;
  bool same_top = false;
};

Compared Compare(const Prediction& prediction) {
  const auto& [own, base] = prediction.logits;
  const auto best_own = std::max_element(own.begin(), own.end());
  const auto best_base = std::max_element(base.begin(), base.end());
  const double own_shift = LogSumExp(own, *best_own), base_shift = LogSumExp(base, *best_base);
  Compared result;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double log_base = static_cast<double>(base[i]) - base_shift;
    result.kl += std::exp(log_base) * (log_base - (static_cast<double>(own[i]) - own_shift));
  }
  const auto target = static_cast<std::size_t>(prediction.target);
  result.own_nll = own_shift - static_cast<double>(own[target]);
  result.base_nll = base_shift - static_cast<double>(base[target]);
  result.same_top = best_own - own.begin() == best_base - base.begin();
  return result;
}

/// The value below which a share of `sorted` lies, between two neighbours in proportion.
double Quantile(std::span<const double> sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(below);
  return (1 - part) * sorted[below] + part * sorted[above];
}

}  // namespace

Result<DivergenceResult> CompareModels(Session& own, Session& base, std::span<const TokenId> tokens,
                                       const ScoringOptions& options,
                                       const std::function<bool(double)>& progress) {
  Session* const sessions[] = {&own, &base};
  Mean own_nll, base_nll, difference, kl, same;
  std::vector<double> divergences;
  const auto take = [&](const Prediction& prediction) -> Status {
    if (prediction.logits[0].size() != prediction.logits[1].size()) {
      return Fail(ErrorCode::kInvalidArgument, "the models have vocabularies of different sizes");
    }
    const Compared compared = Compare(prediction);
    if (!std::isfinite(compared.own_nll) || !std::isfinite(compared.base_nll)) {
      return Fail(ErrorCode::kNumeric, "the logits are not finite");
    }
    own_nll.Add(compared.own_nll);
    base_nll.Add(compared.base_nll);
    difference.Add(compared.own_nll - compared.base_nll);
    kl.Add(compared.kl);
    divergences.push_back(compared.kl);
    same.Add(compared.same_top ? 1 : 0);
    return {};
  };
  if (Status ran = Windows(sessions, tokens, options).Run(take, progress); !ran) {
    return Fail(ran.error());
  }
  std::sort(divergences.begin(), divergences.end());
  return DivergenceResult{.own = ToPerplexity(own_nll),
                          .base = ToPerplexity(base_nll),
                          .log_ratio = difference.value(),
                          .log_ratio_error = difference.error(),
                          .kl_mean = kl.value(),
                          .kl_error = kl.error(),
                          .kl_median = Quantile(divergences, 0.5),
                          .kl_p99 = Quantile(divergences, 0.99),
                          .kl_max = divergences.back(),
                          .same_top = same.value(),
                          .same_top_error = same.error()};
}

}  // namespace tilewright
