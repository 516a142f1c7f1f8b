#include "tilewright/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/random.h"
#include "model/sampler/portable_exp.h"

namespace tilewright {
namespace {

struct Candidate {
  float logit;
  TokenId id;
};

bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Weights below e^-700 are negligible compared to the best one's, which is 1.
constexpr double kLowest = -700.0;

/// The largest value; minus infinity if there is none. Eight at a time, which compilers vectorise.
float Highest(std::span<const float> values) {
  std::array<float, 8> best;
  best.fill(-kInfinity);
  std::size_t i = 0;
  for (; i + best.size() <= values.size(); i += best.size()) {
    for (std::size_t k = 0; k < best.size(); ++k)
      best[k] = values[i + k] > best[k] ? values[i + k] : best[k];
  }
  for (; i < values.size(); ++i) best[0] = std::max(best[0], values[i]);
  return *std::max_element(best.begin(), best.end());
}

/// weights[i] = e^(scale (logits[i] - best)).
void Weigh(std::span<const float> logits, float best, double scale, std::vector<double>& weights) {
  weights.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double x = (static_cast<double>(logits[i]) - best) * scale;
    weights[i] = x < kLowest ? 0.0 : PortableExp(x < kLowest ? kLowest : x);
  }
}

/// Adds the values in a fixed order, as four interleaved sums.
double Sum(std::span<const double> values) {
  std::array<double, 4> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += values[i + k];
  }
  for (; i < values.size(); ++i) sums[0] += values[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// A threshold such that the weights at or above it sum to at least `wanted`, but not to much more.
/// This avoids sorting the tokens that are far too unlikely to be kept, nearly all of a vocabulary.
/// Weights are at most 1 and are counted in classes, four per power of two, by the leading bits of
/// the number.
double FloorFor(std::span<const double> weights, double wanted) {
  constexpr std::size_t kClasses = 512;  // the last has everything below 2^-127
  constexpr int kShift = 50;
  constexpr std::uint64_t kOne = std::bit_cast<std::uint64_t>(1.0);
  std::array<double, kClasses> sums{};
  for (const double weight : weights) {
    const std::uint64_t below = (kOne - std::bit_cast<std::uint64_t>(weight)) >> kShift;
    sums[std::min<std::uint64_t>(below, kClasses - 1)] += weight;
  }
  double reached = 0;
  for (std::size_t i = 0; i + 1 < kClasses; ++i) {
    reached += sums[i];
    // A little more than wanted: the same weights are added in another order later and round
    // differently.
    if (reached >= wanted * (1 + 1e-9))
      return std::bit_cast<double>(kOne - ((i + 1) << kShift) + 1);
  }
  return 0.0;
}

}  // namespace

Status ValidateSamplerOptions(const SamplerOptions& options) {
  const auto refuse = [](const char* field, auto value, const char* range) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} = {}: must be {}", field, value, range));
  };
  if (!std::isfinite(options.temperature))
    return refuse("temperature", options.temperature, "a finite number");
  if (options.top_k < 0) return refuse("top_k", options.top_k, "0 (all tokens) or more");
  if (!(options.top_p >= 0 && options.top_p <= 1))
    return refuse("top_p", options.top_p, "from 0 to 1");
  if (!(options.min_p >= 0 && options.min_p <= 1))
    return refuse("min_p", options.min_p, "from 0 to 1");
  if (!(options.repeat_penalty > 0 && std::isfinite(options.repeat_penalty))) {
    return refuse("repeat_penalty", options.repeat_penalty, "above 0 and finite");
  }
  if (options.repeat_window < -1)
    return refuse("repeat_window", options.repeat_window, "-1 (all tokens) or more");
  return {};
}

struct Sampler::Impl {
  explicit Impl(const SamplerOptions& wanted) : options(wanted), random(wanted.seed) {}

  bool greedy() const {
    // The inverse of a subnormal temperature would be infinite.
    return options.temperature < std::numeric_limits<double>::min();
  }
  bool filters() const { return options.top_p < 1 || options.min_p > 0; }
  bool penalises() const { return options.repeat_penalty != 1.0 && options.repeat_window != 0; }

  Status Check(std::span<const float> values) const;
  std::span<const float> WithPenalty(std::span<const float> values);
  void CollectTopK(std::span<const float> values);
  void CollectLikely(std::span<const float> values);
  void FilterCandidates();
  void Cut(double wanted);
  void SortCandidates();
  std::size_t DrawIndex(std::span<const float> logits);

  SamplerOptions options;
  Random random;
  std::int64_t accepted = 0;
  std::vector<TokenId> recent;  // a ring of repeat_window tokens, or all of them if that is -1
  std::size_t oldest = 0;       // where the ring is overwritten next
  std::vector<TokenId> penalised;
  std::vector<float> penalised_logits;
  std::vector<Candidate> candidates;  // the best first
  std::vector<float> candidate_logits;
  std::vector<double> weights;
};

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;
const SamplerOptions& Sampler::options() const { return impl_->options; }

Result<Sampler> Sampler::Create(const SamplerOptions& options) {
  if (Status status = ValidateSamplerOptions(options); !status)
    return Fail(std::move(status.error()));
  return Sampler(std::make_unique<Impl>(options));
}

void Sampler::Reset() {
  impl_->random = Random(impl_->options.seed);
  impl_->accepted = 0;
  impl_->recent.clear();
  impl_->oldest = 0;
}

void Sampler::Accept(TokenId token) {
  Impl& impl = *impl_;
  ++impl.accepted;
  const std::int32_t window = impl.options.repeat_window;
  if (token < 0 || window == 0) return;
  if (window < 0 || impl.recent.size() < static_cast<std::size_t>(window)) {
    impl.recent.push_back(token);
    return;
  }
  impl.recent[impl.oldest] = token;
  impl.oldest = (impl.oldest + 1) % impl.recent.size();
}

Status Sampler::Impl::Check(std::span<const float> values) const {
  if (values.empty()) return Fail(ErrorCode::kInvalidArgument, "no logits to sample from");
  bool bad = false;
  for (const float value : values)
    bad |= !(value < kInfinity);  // NaN too; branch-free, so that it is vectorised
  if (!bad) return {};
  std::size_t i = 0;
  while (values[i] < kInfinity) ++i;
  return Fail(
      ErrorCode::kNumeric,
      fmt::format("logit {} of {} is {}, at position {}: the model computed invalid numbers", i,
                  values.size(), std::isnan(values[i]) ? "NaN" : "infinite", accepted));
}

std::span<const float> Sampler::Impl::WithPenalty(std::span<const float> values) {
  if (options.repeat_penalty == 1.0 || recent.empty()) return values;
  std::vector<float>& logits = penalised_logits;
  logits.assign(values.begin(), values.end());
  // Each token once, however often it was seen.
  penalised.assign(recent.begin(), recent.end());
  std::sort(penalised.begin(), penalised.end());
  penalised.erase(std::unique(penalised.begin(), penalised.end()), penalised.end());
  const auto penalty = static_cast<float>(options.repeat_penalty);
  for (const TokenId id : penalised) {
    if (static_cast<std::size_t>(id) >= logits.size()) break;
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
    // A penalty below 1 may make a large logit overflow.
    logit = std::min(logit, std::numeric_limits<float>::max());
  }
  return logits;
}

/// Fills the candidates with the best top_k tokens that are not excluded.
void Sampler::Impl::CollectTopK(std::span<const float> values) {
  candidates.clear();
  const auto count = static_cast<TokenId>(values.size());
  const auto k = static_cast<std::size_t>(options.top_k);
  // A heap of k, with the worst on top, is fastest while few tokens enter it; for a large k,
  // selecting from all tokens is faster.
  const bool select = k > values.size() / 16;
  for (TokenId id = 0; id < count; ++id) {
    const Candidate candidate{values[static_cast<std::size_t>(id)], id};
    if (candidate.logit == -kInfinity) continue;
    if (select || candidates.size() < k) {
      candidates.push_back(candidate);
      if (!select && candidates.size() == k)
        std::make_heap(candidates.begin(), candidates.end(), Better);
    } else if (candidate.logit >
               candidates.front().logit) {  // an equal one has a higher id, so it ranks lower
      std::pop_heap(candidates.begin(), candidates.end(), Better);
      candidates.back() = candidate;
      std::push_heap(candidates.begin(), candidates.end(), Better);
    }
  }
  if (candidates.size() > k) {
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(k),
                     candidates.end(), Better);
    candidates.resize(k);
  }
  SortCandidates();
}

void Sampler::Impl::SortCandidates() {
  std::sort(candidates.begin(), candidates.end(), Better);
  candidate_logits.clear();
  for (const Candidate& candidate : candidates) candidate_logits.push_back(candidate.logit);
}

/// Fills the candidates with those of all tokens that top-p and min-p keep.
void Sampler::Impl::CollectLikely(std::span<const float> values) {
  Weigh(values, Highest(values), 1.0, weights);
  const double wanted = options.top_p * Sum(weights);
  const double floor = std::max(options.min_p, options.top_p < 1 ? FloorFor(weights, wanted) : 0.0);
  candidates.clear();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (weights[i] >= floor && weights[i] > 0)
      candidates.push_back({values[i], static_cast<TokenId>(i)});
  }
  SortCandidates();
  Weigh(candidate_logits, candidate_logits.front(), 1.0, weights);
  Cut(wanted);
}

/// Applies top-p and min-p to the candidates.
void Sampler::Impl::FilterCandidates() {
  Weigh(candidate_logits, candidate_logits.front(), 1.0, weights);
  Cut(options.top_p * Sum(weights));
}

/// Keeps the shortest run of the best candidates whose weights reach `wanted` (all of them if top_p
/// is 1), and of these the ones that min_p allows. Needs their weights at temperature 1.
void Sampler::Impl::Cut(double wanted) {
  double reached = 0;
  std::size_t kept = 0;
  while (kept < candidates.size() && weights[kept] >= options.min_p &&
         (kept == 0 || options.top_p >= 1 || reached < wanted)) {
    reached += weights[kept++];
  }
  candidates.resize(kept);
  candidate_logits.resize(kept);
}

/// The index of one of the logits, at random by their probabilities at the temperature.
std::size_t Sampler::Impl::DrawIndex(std::span<const float> logits) {
  Weigh(logits, Highest(logits), 1.0 / options.temperature, weights);
  const double point = random.Uniform() * Sum(weights);
  double reached = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    reached += weights[i];
    if (point < reached) return i;
    if (weights[i] > 0) last = i;
  }
  return last;  // the sums may round differently
}

Result<TokenId> Sampler::Sample(std::span<const float> values) {
  Impl& impl = *impl_;
  const SamplerOptions& options = impl.options;
  if (Status status = impl.Check(values); !status) return Fail(std::move(status.error()));
  const std::span<const float> logits = impl.WithPenalty(values);
  const float best = Highest(logits);
  if (best == -kInfinity) {
    return Fail(ErrorCode::kNumeric, fmt::format("all {} logits are minus infinity, at position {}",
                                                 values.size(), impl.accepted));
  }
  if (impl.greedy()) {
    return static_cast<TokenId>(std::find(logits.begin(), logits.end(), best) - logits.begin());
  }
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < logits.size()) {
    impl.CollectTopK(logits);
    if (impl.filters()) impl.FilterCandidates();
  } else if (impl.filters()) {
    impl.CollectLikely(logits);
  } else {
    return static_cast<TokenId>(impl.DrawIndex(logits));
  }
  return impl.candidates[impl.DrawIndex(impl.candidate_logits)].id;
}

std::int32_t Sampler::TopNeeded(std::size_t vocab) const {
  if (impl_->penalises()) return 0;
  if (impl_->greedy()) return 1;
  const std::int32_t k = impl_->options.top_k;
  return k > 0 && static_cast<std::size_t>(k) < vocab ? k : 0;
}

Result<TokenId> Sampler::SampleTop(std::span<const TokenId> ids, std::span<const float> logits) {
  Impl& impl = *impl_;
  const std::size_t needed =
      impl.greedy() ? 1 : static_cast<std::size_t>(std::max(impl.options.top_k, 0));
  if (impl.penalises() || needed == 0 || ids.size() != needed ||
      (!impl.greedy() && logits.size() != needed)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} ids and {} of the best logits to sample from: must be {}",
                            ids.size(), logits.size(),
                            impl.penalises() || needed == 0 ? "all logits"
                                                            : fmt::format("{} each", needed)));
  }
  if (ids[0] < 0) {
    return Fail(ErrorCode::kNumeric,
                fmt::format("no logit can be picked, at position {}", impl.accepted));
  }
  if (impl.greedy()) return ids[0];
  impl.candidates.clear();
  impl.candidate_logits.clear();
  for (std::size_t i = 0; i < needed && ids[i] >= 0; ++i) {
    impl.candidates.push_back({logits[i], ids[i]});
    impl.candidate_logits.push_back(logits[i]);
  }
  if (impl.filters()) impl.FilterCandidates();
  return impl.candidates[impl.DrawIndex(impl.candidate_logits)].id;
}

}  // namespace tilewright
