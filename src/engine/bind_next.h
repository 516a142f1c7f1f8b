#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/text.h"
#include "engine/stage_templates.h"

namespace tilewright {

/// A kernel that could not be prepared, and why: one line.
struct Unbindable {
  std::string kernel, reason;
};

/// "a and b cannot be prepared (no compiler); c cannot be prepared (CUDA_ERROR_INVALID_IMAGE)":
/// kernels with the same reason together, the third and later ones counted.
std::string UnbindableText(const std::vector<Unbindable>& failed);

/// Kernels that could not be prepared for a problem: the compiler refused one, its module did not
/// load, a library had no algorithm. Never stored: a library may be installed, or a driver updated,
/// before the next run. One thread at a time.
class BindFailures {
 public:
  /// Remembers the kernel for this problem (Op::kName and KeyOf). False where it has failed for the
  /// same reason before, with another problem.
  bool Add(const std::string& problem, Unbindable failure);
  /// Those of a problem; nullptr if there are none.
  const std::vector<Unbindable>* Find(const std::string& problem) const;
  /// Counts what was added for the first time: kernel and reason.
  std::size_t known() const { return known_.size(); }

 private:
  std::map<std::string, std::vector<Unbindable>> of_;
  std::set<std::pair<std::string, std::string>> known_;  ///< kernel, reason
};

/// Why preparing a kernel has failed, as one line: `error` without the kernel's name in front, up to
/// the end of its first line.
std::string BindReason(const Error& error, std::string_view kernel);

/// Whether another kernel may be tried where preparing one has failed: not for one that the user
/// has pinned, and not where the next one would fail too, because the device is lost, its memory is
/// full, or the caller wants to stop.
bool MayTryNext(const Error& error, Provenance provenance, Device& device);

/// What Choose is asked with.
template <class Op>
struct BindTerms {
  FeasibleOptions feasible;
  const TunedSpecs<Op>* tuned = nullptr;
  const Pins* pins = nullptr;
  DispatchPolicy policy = DispatchPolicy::kDefault;
};

template <class Op>
std::string BindKey(const typename Op::Desc& problem) {
  return std::string(Op::kName) + " " + KeyOf(problem);
}

/// Those of `kernels` that have not failed for the problem.
template <class Op>
std::vector<typename Op::KernelType*> Bindable(std::span<typename Op::KernelType* const> kernels,
                                               const std::vector<Unbindable>* failed) {
  std::vector<typename Op::KernelType*> left(kernels.begin(), kernels.end());
  if (failed == nullptr) return left;
  std::erase_if(left, [failed](const auto* kernel) {
    return std::any_of(failed->begin(), failed->end(),
                       [kernel](const Unbindable& one) { return one.kernel == kernel->name(); });
  });
  return left;
}

/// Chooses and binds. A kernel that cannot be prepared is put into `failures` and the choice is made
/// among the others; the log names both kernels once. `accept(choice)`, a Status, is asked before
/// each attempt. Errors: those of Choose and `accept`; what Bind fails with where MayTryNext says
/// no; kUnsupported, naming the kernels and their reasons in one line, where none is left.
template <class Op, class Accept>
Result<Plan<Op>> BindNext(const Checked<Op>& checked, const OpRegistry<Op>& registry,
                          Device& device, const BindTerms<Op>& terms, BindFailures& failures,
                          Accept&& accept) {
  const std::string key = BindKey<Op>(checked.problem());
  std::vector<Unbindable> news;
  for (;;) {
    const std::vector<Unbindable>* failed = failures.Find(key);
    const auto kernels = Bindable<Op>(registry.kernels(), failed);
    const Candidates<Op> candidates =
        Stages<Op>::Feasible(checked, kernels, device.spec(), terms.feasible);
    const Result<Choice<Op>> choice =
        Stages<Op>::Choose(candidates, terms.tuned, terms.pins, terms.policy);
    if (!choice && failed != nullptr && candidates.feasible_count() == 0) {
      return Fail(ErrorCode::kUnsupported,
                  Format("no kernel is left for {}: {}; {} others do not apply", key,
                         UnbindableText(*failed), candidates.all().size()));
    }
    if (!choice) return Fail(choice.error());
    if (Status accepted = accept(*choice); !accepted) return Fail(accepted.error());
    Result<Plan<Op>> plan = Stages<Op>::Bind(*choice, device);
    if (plan) {
      if (!news.empty()) {
        LogWarning(Format("{}: {}; {} is used instead", Op::kName, UnbindableText(news),
                          plan->kernel().name()));
      }
      return plan;
    }
    if (!MayTryNext(plan.error(), choice->provenance(), device)) return plan;
    Unbindable failure{std::string(choice->kernel().name()), {}};
    failure.reason = BindReason(plan.error(), failure.kernel);
    if (failures.Add(key, failure)) news.push_back(std::move(failure));
  }
}

}  // namespace tilewright
