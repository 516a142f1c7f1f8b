#include <string>

#include "tilewright/records.h"

namespace tilewright {
namespace {

std::string EntryKey(std::string_view kernel, std::string_view fingerprint,
                     std::string_view problems) {
  std::string key(kernel);
  key.append(1, '\n').append(fingerprint).append(1, '\n').append(problems);
  return key;
}

}  // namespace

void Quarantine::Add(std::string_view kernel, std::string_view fingerprint,
                     std::string_view problems, std::string evidence) {
  entries_.try_emplace(EntryKey(kernel, fingerprint, problems), std::move(evidence));
}

const std::string* Quarantine::Find(const KernelInfo& kernel, std::string_view problems) const {
  if (entries_.empty()) return nullptr;
  const auto found = entries_.find(EntryKey(kernel.name, kernel.fingerprint, problems));
  return found == entries_.end() ? nullptr : &found->second;
}

std::string_view MeasurePolicyName(MeasurePolicy policy) {
  return policy == MeasurePolicy::kCold ? "cold" : "warm";
}

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWrong:
      return "wrong";
    case Verdict::kGuard:
      return "guard";
    case Verdict::kError:
      return "error";
    case Verdict::kCrash:
      return "crash";
    case Verdict::kHang:
      return "hang";
  }
  return "unknown";
}

}  // namespace tilewright
