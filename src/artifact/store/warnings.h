#pragma once

#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/log.h"

namespace tilewright {

/// Messages for the user, each reported once; also logged. Any thread.
class Warnings {
 public:
  /// Does nothing if `about` was reported before, even if `text` differs (in numbers, for
  /// instance).
  void Report(const std::string& about, const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      if (!reported_.insert(about).second) return;
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
  std::unordered_set<std::string> reported_;
  std::vector<std::string> texts_;
};

}  // namespace tilewright
