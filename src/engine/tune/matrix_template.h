#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/text.h"
#include "engine/tune/tune_template.h"
#include "engine/tuner_stats.h"
#include "tilewright/matrix.h"

namespace tilewright {

/// One call of MeasureMatrix.
template <class Op>
class MatrixSession {
 public:
  MatrixSession(const Contestants<Op>& all, Measurer<Op>& measurer, const MatrixOptions& options)
      : all_(all), measurer_(measurer), options_(options), random_(options.tuner.seed) {}

  Result<MatrixProblem> Run(const typename Op::Desc& problem) {
    MatrixProblem matrix{std::string(Op::kName), KeyOf(problem), {}};
    for (std::size_t i = 0; i < all_.specs.size(); ++i) {
      if (Cancelled()) return Stopped();
      const Tuner::Outcome checked = measurer_.Check(all_.specs[i]);
      if (checked.verdict != Verdict::kOk || checked.skipped) continue;
      matrix.candidates.push_back({all_.candidates[i], 1, {}});
      lanes_.push_back({i, true});
    }
    for (int round = 0; round < options_.rounds; ++round) {
      if (!TakeRound(matrix)) return Stopped();
      if (round + 1 == kFirstBlocks) Size(matrix);
      if (options_.progress) options_.progress((round + 1.0) / options_.rounds);
    }
    for (std::size_t i = lanes_.size(); i-- > 0;) {
      if (matrix.candidates[i].samples.empty())
        matrix.candidates.erase(matrix.candidates.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (matrix.candidates.empty())
      return Fail(ErrorCode::kInternal, "no candidate is right and was timed");
    return matrix;
  }

 private:
  struct Lane {
    std::size_t spec = 0;
    bool open = true;
  };

  bool Cancelled() const {
    return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
  }
  static tl::unexpected<Error> Stopped() { return Fail(ErrorCode::kCancelled, "interrupted"); }

  /// One sample of every open candidate; false if cancelled. One that fails is out with all its samples.
  bool TakeRound(MatrixProblem& matrix) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].open) order.push_back(i);
    }
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
    for (const std::size_t i : order) {
      if (Cancelled()) return false;
      MatrixCandidate& one = matrix.candidates[i];
      const Tuner::Outcome outcome = measurer_.Time(all_.specs[lanes_[i].spec], one.reps);
      if (outcome.verdict != Verdict::kOk || outcome.skipped || !(outcome.us > 0)) {
        lanes_[i].open = false;
        one.samples.clear();
        continue;
      }
      const double cost = outcome.cost_us > 0 ? outcome.cost_us : outcome.us * one.reps;
      one.samples.push_back({outcome.us, cost, outcome.reference_us, outcome.disturbed});
    }
    return true;
  }

  /// Sizes the samples as the tuner does; of candidates far behind, the first two rounds are enough.
  void Size(MatrixProblem& matrix) {
    const Tuner::Options& t = options_.tuner;
    const auto quickest = [](const MatrixCandidate& one) {
      double us = std::numeric_limits<double>::infinity();
      for (const MatrixSample& sample : one.samples) us = std::min(us, sample.us);
      return us;
    };
    double best = std::numeric_limits<double>::infinity();
    for (const MatrixCandidate& one : matrix.candidates) best = std::min(best, quickest(one));
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      MatrixCandidate& one = matrix.candidates[i];
      const double us = quickest(one);
      lanes_[i].open = lanes_[i].open && (us <= t.give_up * best || one.candidate.fallback);
      one.reps = RepsOf(us, t.sample_us, t.max_reps);
    }
  }

  const Contestants<Op>& all_;
  Measurer<Op>& measurer_;
  const MatrixOptions& options_;
  Random random_;
  std::vector<Lane> lanes_;  ///< beside the candidates of the matrix
};

template <class Op>
Result<MatrixProblem> MeasureMatrix(const typename Op::Desc& problem,
                                    const OpRegistry<Op>& registry, const DeviceSpec& device,
                                    std::type_identity_t<Measurer<Op>>& measurer,
                                    const MatrixOptions& options) {
  const auto checked = Validate(problem);
  if (!checked) return Fail(checked.error());
  const Candidates<Op> candidates = Feasible(*checked, registry, device, options.feasible);
  if (candidates.feasible_count() == 0)
    return Fail(ErrorCode::kUnsupported, "no kernel can run it:\n" + candidates.RejectionText());
  if (const auto prepared = measurer.Prepare(problem); !prepared) return Fail(prepared.error());
  const Contestants<Op> all = ContestantsOf(candidates);
  return MatrixSession<Op>(all, measurer, options).Run(problem);
}

/// In one .cc file of the operation's room.
#define TILEWRIGHT_INSTANTIATE_MATRIX(OP)                                                  \
  template Result<MatrixProblem> MeasureMatrix<OP>(const OP::Desc&, const OpRegistry<OP>&, \
                                                   const DeviceSpec&, Measurer<OP>&,       \
                                                   const MatrixOptions&)

}  // namespace tilewright
