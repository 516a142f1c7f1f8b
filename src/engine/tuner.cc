#include "tilewright/tuner.h"

#include <algorithm>
#include <string_view>

#include "core/hash.h"
#include "core/random.h"
#include "engine/tuner_impl.h"

namespace tilewright {
namespace {

// Problems whose launches take milliseconds get fewer candidates: their samples are long, hence
// less noisy, and expensive.
constexpr int kSlowTopK = 8;

// Each further configuration of a kernel must be expected to take so much less than one of another kernel:
// what tells it from those before, the model hardly knows. (Two cores of a Zen 5, bf16, 36 products, sessions replayed:
// 1.05 % lost in the mean with six candidates of slow problems and without this, 0.61 % so, for 9 % more time; with ten
// and without this 0.70 % for 26 %. q4_0: 0.39 % either way.)
constexpr double kCrowd = 0.1;

// Of the budget, what checks may take once there are two candidates to time: each is a few launches and a comparison
// with the oracle, and a session that ends before anything is timed decides nothing, however often it is repeated.
constexpr double kCheckShare = 0.5;

}  // namespace

Tuner::Impl::Impl(std::vector<Candidate> candidates, const Options& given) : options(given) {
  random_state = options.seed;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Arm arm;
    arm.candidate = std::move(candidates[i]);
    arm.index = static_cast<int>(i);
    arms.push_back(std::move(arm));
  }
  std::sort(arms.begin(), arms.end(),
            [](const Arm& x, const Arm& y) { return x.candidate.name < y.candidate.name; });
  arm_of.resize(arms.size());
  for (std::size_t a = 0; a < arms.size(); ++a) {
    arm_of[static_cast<std::size_t>(arms[a].index)] = static_cast<int>(a);
    random_state = HashCombine(random_state, Hash64(arms[a].candidate.name));
  }
  Prune();
  DefenderFirst();
  if (queue.empty()) phase = Phase::kDone;
}

double Tuner::Impl::Predicted(const Arm& arm) {
  const double us = arm.candidate.predicted_us;
  return us > 0 && std::isfinite(us) ? us : kInfinity;
}

void Tuner::Impl::Prune() {
  std::vector<int> ranked(arms.size());
  for (int a = 0; a < Count(); ++a) ranked[static_cast<std::size_t>(a)] = a;
  std::stable_sort(ranked.begin(), ranked.end(),
                   [this](int x, int y) { return Predicted(At(x)) < Predicted(At(y)); });
  // Measured against the best of another kernel, or the second where there is but one: a kernel
  // whose model is far too hopeful must not shut out all others, however many specs it has.
  const auto kernel = [this](int a) {
    const std::string_view name = At(a).candidate.name;
    return name.substr(0, name.find(' '));
  };
  auto rival = std::find_if(ranked.begin(), ranked.end(),
                            [&](int a) { return kernel(a) != kernel(ranked.front()); });
  if (rival == ranked.end()) rival = ranked.begin() + (ranked.size() > 1 ? 1 : 0);
  const double limit = ranked.empty() ? kInfinity : options.max_predicted * Predicted(At(*rival));
  std::map<std::string_view, int> before;
  std::vector<double> crowded(arms.size());
  for (const int a : ranked)
    crowded[static_cast<std::size_t>(a)] = Predicted(At(a)) * (1 + kCrowd * before[kernel(a)]++);
  std::stable_sort(ranked.begin(), ranked.end(), [&crowded](int x, int y) {
    return crowded[static_cast<std::size_t>(x)] < crowded[static_cast<std::size_t>(y)];
  });
  const bool slow = !ranked.empty() && std::isfinite(Predicted(At(ranked.front()))) &&
                    Predicted(At(ranked.front())) > options.slow_us;
  const int top_k = slow ? std::min(options.top_k, kSlowTopK) : options.top_k;
  std::map<int, bool> led;
  int kept = 0;
  for (const int a : ranked) {
    Arm& arm = At(a);
    const bool known_slow = std::isfinite(Predicted(arm)) && Predicted(arm) > limit;
    const bool leads = !known_slow && !std::exchange(led[arm.candidate.group], true);
    arm.kept =
        arm.candidate.incumbent || arm.candidate.fallback || leads || (!known_slow && kept < top_k);
    arm.alive = arm.kept;
    kept += arm.kept ? 1 : 0;
    if (arm.kept) queue.push_back(a);
  }
  std::reverse(queue.begin(), queue.end());
}

void Tuner::Impl::LeaveUnchecked() {
  const bool enough = AliveCount() - static_cast<int>(queue.size()) >= 2;
  if (phase != Phase::kCheck || !enough || spent < kCheckShare * options.budget_us) return;
  for (const int a : queue) At(a).kept = At(a).alive = false;
  queue.clear();
}

bool Tuner::Impl::OwesTimes() const {
  if (AliveCount() < 2 || dropped > 0) return false;
  const auto timed =
      std::count_if(arms.begin(), arms.end(), [](const Arm& arm) { return !arm.log_us.empty(); });
  return timed < 2 && (phase == Phase::kFirst || (phase == Phase::kCheck && queue.empty()));
}

Tuner::Tuner(std::vector<Candidate> candidates, const Options& options)
    : impl_(std::make_unique<Impl>(std::move(candidates), options)) {}
Tuner::~Tuner() = default;
Tuner::Tuner(Tuner&&) noexcept = default;
Tuner& Tuner::operator=(Tuner&&) noexcept = default;

std::optional<Tuner::Ask> Tuner::Next() {
  Impl& t = *impl_;
  if (t.asked >= 0) return std::nullopt;  // the last question has no answer yet
  if (t.options.budget_us > 0) t.LeaveUnchecked();
  if (t.phase != Impl::Phase::kDone && t.options.budget_us > 0 && t.spent >= t.options.budget_us &&
      !t.OwesTimes())
    t.StopFor("the budget ran out");
  t.Advance();
  if (t.phase == Impl::Phase::kDone) return std::nullopt;
  t.asked = t.queue.back();
  t.queue.pop_back();
  const bool check = t.phase == Impl::Phase::kCheck || t.phase == Impl::Phase::kRecheck;
  const Impl::Arm& arm = t.At(t.Real(t.asked));
  return Ask{check ? Action::kCheck : Action::kTime, arm.index, check ? 1 : arm.reps, t.block};
}

void Tuner::Notify(const Outcome& outcome) {
  Impl& t = *impl_;
  if (t.asked < 0) return;
  const int asked = std::exchange(t.asked, -1), a = t.Real(asked);
  Impl::Arm& arm = t.At(a);
  const bool check = t.phase == Impl::Phase::kCheck || t.phase == Impl::Phase::kRecheck;
  arm.result.tried = !outcome.skipped;
  t.spent +=
      outcome.cost_us > 0 ? outcome.cost_us : (check ? 0 : std::max(0.0, outcome.us) * arm.reps);
  if (outcome.skipped) {
    arm.alive = false;
    arm.log_us.clear();
    t.AfterFailure(a);
  } else if (outcome.verdict != Verdict::kOk) {
    t.Kill(arm, outcome.verdict, outcome.evidence);
    t.AfterFailure(a);
  } else if (!check) {
    // A time of 0 or less means that nothing was measured, whatever the reason.
    if (outcome.us > 0 && std::isfinite(outcome.us)) {
      t.disturbed = t.disturbed || outcome.disturbed;
      if (outcome.reference_us > 0) {
        t.reference_times.push_back(outcome.reference_us);
        t.reference_us[t.block] = std::max(t.reference_us[t.block], outcome.reference_us);
      }
      if (asked == t.Copy()) {
        t.control_log_us[t.block] = std::log(outcome.us);
      } else {
        t.TakeTime(arm, outcome.us);
      }
    } else {
      t.Kill(arm, Verdict::kError, "its time was not a positive number");
      t.AfterFailure(a);
    }
  }
  if (t.phase == Impl::Phase::kCheck && !t.arms.empty()) {
    t.progress = std::max(t.progress, 0.1);
  }
}

void Tuner::Stop() {
  if (impl_->phase != Impl::Phase::kDone) impl_->StopFor("it was stopped");
  impl_->asked = -1;
}

std::optional<int> Tuner::Best() const {
  const auto best = impl_->BestArm();
  if (!best) return std::nullopt;
  return impl_->At(*best).index;
}

bool Tuner::conclusive() const { return impl_->conclusive; }
const std::string& Tuner::inconclusive() const {
  static const std::string kNothing;
  return impl_->phase == Impl::Phase::kDone && !impl_->conclusive ? impl_->inconclusive : kNothing;
}
int Tuner::dropped() const { return impl_->dropped; }
double Tuner::reference_us() const { return impl_->FullSpeed(); }
bool Tuner::in_slow_spell() const { return impl_->slow_spell; }
Tuner::Gain Tuner::gain() const { return impl_->conclusive ? impl_->gain : Gain{}; }
double Tuner::spent_us() const { return impl_->spent; }
double Tuner::progress() const { return impl_->progress; }

const Tuner::Result& Tuner::result(int candidate) const {
  return impl_->At(impl_->arm_of[static_cast<std::size_t>(candidate)]).result;
}

}  // namespace tilewright
