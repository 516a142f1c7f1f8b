#pragma once

#include "tilewright/stages.h"

namespace tilewright::cli {

/// What the cost model says of a launch among all that are feasible.
struct ModelView {
  double us = 0;       ///< predicted
  int rank = 1;        ///< 1: the model's first guess
  int candidates = 0;  ///< launches, without the reference kernel's
};

template <class Op>
ModelView ModelOf(const Candidates<Op>& candidates, const typename Op::Spec& launch) {
  ModelView view;
  const auto each = [&](auto&& f) {
    for (const Candidate<Op>& candidate : candidates.all()) {
      if (!candidate.feasible()) continue;
      for (const typename Op::Spec& spec : candidate.specs) f(candidate, spec);
    }
  };
  each([&](const Candidate<Op>&, const typename Op::Spec& spec) {
    if (spec == launch) view.us = static_cast<double>(spec.predicted_us);
  });
  each([&](const Candidate<Op>& candidate, const typename Op::Spec& spec) {
    if (candidate.kernel->info().reference) return;
    ++view.candidates;
    if (static_cast<double>(spec.predicted_us) < view.us) ++view.rank;
  });
  return view;
}

}  // namespace tilewright::cli
