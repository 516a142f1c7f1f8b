#pragma once

#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/log.h"

namespace tilewright {

/// What the user should know, each thing once; also logged. Any thread.
class Warnings {
 public:
  /// Nothing where `about` was told before: the same trouble in other words, with other numbers, is
  /// not told again.
  void Tell(const std::string& about, const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      if (!told_.insert(about).second) return;
      texts_.push_back(text);
    }
    LogWarning(text);
  }
  std::vector<std::string> All() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  /// Held around a fork.
  std::mutex& mutex() { return mutex_; }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<std::string> told_;
  std::vector<std::string> texts_;
};

}  // namespace tilewright
