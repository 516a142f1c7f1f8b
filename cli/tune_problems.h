#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tilewright/tilewright.h"
#include "tilewright/tune.h"
#include "verbs.h"

namespace tilewright::cli {

/// Problems of one operation; the same one again adds to its weight.
template <class Op>
class ProblemList {
 public:
  void Add(const typename Op::Desc& desc, double weight) {
    const auto [at, fresh] = index_.try_emplace(KeyOf(desc), list_.size());
    if (fresh) {
      list_.push_back({desc, weight});
    } else {
      list_[at->second].weight += weight;
    }
  }
  const std::vector<TuneProblemOf<Op>>& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> index_;
  std::vector<TuneProblemOf<Op>> list_;
};

/// Problems of all operations.
template <class List>
class ProblemsOf;
template <class... Ops>
class ProblemsOf<OperationList<Ops...>> {
 public:
  template <class Op>
  ProblemList<Op>& of() {
    return std::get<ProblemList<Op>>(lists_);
  }
  template <class Op>
  const ProblemList<Op>& of() const {
    return std::get<ProblemList<Op>>(lists_);
  }
  int size() const { return (0 + ... + static_cast<int>(of<Ops>().list().size())); }

 private:
  std::tuple<ProblemList<Ops>...> lists_;
};
using TuneProblems = ProblemsOf<AllOperations>;

/// Everything that the command line asks for, and the device, opened for its model if it names one.
struct Asked {
  std::unique_ptr<Context> context;
  TuneProblems problems;
};
Result<Asked> Ask(const TuneArguments& options, Calibration calibration = Calibration::kStored);

/// A wrong word among --gemm, --op, --ops and --m, as a usage error.
Status CheckProblemWords(const TuneArguments& options);

}  // namespace tilewright::cli
