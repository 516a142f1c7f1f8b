#include "engine/record_fork.h"

#include <pthread.h>

#include <algorithm>
#include <vector>

namespace tilewright {
namespace {

// Never destroyed: a fork may happen at any time, even while the process ends.
struct Sentries {
  std::mutex mutex;
  std::vector<ForkSentry*> all;
};
Sentries& TheSentries() {
  static auto* const kSentries = new Sentries;
  return *kSentries;
}

}  // namespace

struct ForkHandlers {
  static void Prepare() {
    Sentries& sentries = TheSentries();
    sentries.mutex.lock();
    for (ForkSentry* sentry : sentries.all) {
      sentry->mutex_.lock();
      sentry->close_(sentry->context_);
    }
  }
  static void Release() {
    Sentries& sentries = TheSentries();
    for (ForkSentry* sentry : sentries.all) sentry->mutex_.unlock();
    sentries.mutex.unlock();
  }
};

ForkSentry::ForkSentry(std::mutex& mutex, void (*close)(void*), void* context)
    : mutex_(mutex), close_(close), context_(context) {
  static const int kInstalled =
      pthread_atfork(&ForkHandlers::Prepare, &ForkHandlers::Release, &ForkHandlers::Release);
  static_cast<void>(kInstalled);  // fails only without memory; then forks are not guarded
  Sentries& sentries = TheSentries();
  const std::lock_guard<std::mutex> lock(sentries.mutex);
  sentries.all.push_back(this);
}

ForkSentry::~ForkSentry() {
  Sentries& sentries = TheSentries();
  const std::lock_guard<std::mutex> lock(sentries.mutex);
  std::erase(sentries.all, this);
}

}  // namespace tilewright
