#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/kernel.h"
#include "tilewright/records.h"
#include "tilewright/tuner.h"

namespace tilewright {

/// What one scope knew of an operation when a tuning session began, by problem.
class KnownRecords {
 public:
  KnownRecords() = default;
  KnownRecords(std::span<const Record> records, const RecordScope& scope);

  std::span<const Record> Of(std::string_view problem) const;
  /// A finished session timed this candidate, or it failed.
  bool Has(std::string_view problem, const KernelInfo& kernel, std::string_view spec) const;

 private:
  std::map<std::string, std::vector<Record>, std::less<>> by_problem_;
};

/// The candidates that a tuner with these options checks first: those that the model keeps.
std::set<int> FirstChecked(const std::vector<Tuner::Candidate>& candidates,
                           const Tuner::Options& options);

}  // namespace tilewright
