#include "engine/bind_next.h"

#include <algorithm>
#include <cstddef>

#include "device/loss.h"

namespace tilewright {
namespace {

/// Names of one reason that are written out.
constexpr std::size_t kNamed = 2;

/// "a", "a and b", "a, b and 3 more".
std::string NamesText(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamed);
  const std::size_t more = names.size() - shown;
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == shown && more == 0;
    if (i > 0) text += last ? " and " : ", ";
    text += names[i];
  }
  return more > 0 ? text + Format(" and {} more", more) : text;
}

}  // namespace

std::string UnbindableText(const std::vector<Unbindable>& failed) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const Unbindable& one : failed) {
    auto group = std::find_if(by_reason.begin(), by_reason.end(),
                              [&](const auto& known) { return known.first == one.reason; });
    if (group == by_reason.end()) group = by_reason.insert(group, {one.reason, {}});
    std::vector<std::string>& names = group->second;
    if (std::find(names.begin(), names.end(), one.kernel) == names.end())
      names.push_back(one.kernel);
  }
  std::string text;
  for (const auto& [reason, names] : by_reason) {
    text +=
        Format("{}{} cannot be prepared ({})", text.empty() ? "" : "; ", NamesText(names), reason);
  }
  return text;
}

std::string BindReason(const Error& error, std::string_view kernel) {
  std::string_view text = error.message;
  if (text.starts_with(kernel) && text.substr(kernel.size()).starts_with(": "))
    text.remove_prefix(kernel.size() + 2);
  return std::string(text.substr(0, text.find('\n')));
}

bool BindFailures::Add(const std::string& problem, Unbindable failure) {
  const bool is_new = known_.insert({failure.kernel, failure.reason}).second;
  of_[problem].push_back(std::move(failure));
  return is_new;
}

const std::vector<Unbindable>* BindFailures::Find(const std::string& problem) const {
  const auto found = of_.find(problem);
  return found == of_.end() ? nullptr : &found->second;
}

bool MayTryNext(const Error& error, Provenance provenance, Device& device) {
  if (provenance == Provenance::kPinned || error.code == ErrorCode::kOutOfMemory ||
      error.code == ErrorCode::kCancelled)
    return false;
  return !IsLost(device);
}

}  // namespace tilewright
