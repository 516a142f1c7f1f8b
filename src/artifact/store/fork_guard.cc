#include "artifact/store/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/log.h"

namespace tilewright {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ForkAware*> objects;
};

/// Never destroyed: a fork may happen while the process ends.
Registry& TheRegistry() {
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

void Before() {
  TheRegistry().mutex.lock();
  for (ForkAware* const object : TheRegistry().objects) object->BeforeFork();
}

void InParent() {
  for (ForkAware* const object : TheRegistry().objects) object->AfterForkInParent();
  TheRegistry().mutex.unlock();
}

void InChild() {
  for (ForkAware* const object : TheRegistry().objects) object->AfterForkInChild();
  TheRegistry().mutex.unlock();
}

}  // namespace

void ForkAware::Watch() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Handlers registered later lock earlier. A thread may log while it holds a lock that
    // BeforeFork takes, so the log's lock must be taken last, and its handler be registered first.
    (void)LogEnabled(LogLevel::kError);
    pthread_atfork(Before, InParent, InChild);
  });
  const std::lock_guard lock(TheRegistry().mutex);
  TheRegistry().objects.push_back(this);
}

void ForkAware::Unwatch() {
  const std::lock_guard lock(TheRegistry().mutex);
  std::erase(TheRegistry().objects, this);
}

}  // namespace tilewright
