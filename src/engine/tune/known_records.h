#pragma once

#include <map>
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

/// The candidates that `tuner`, which has been asked nothing, checks before it times any, in that order: those
/// that the model keeps. All pass, and the tuner is left with a question that has no answer.
std::vector<int> FirstChecked(Tuner& tuner);

}  // namespace tilewright
