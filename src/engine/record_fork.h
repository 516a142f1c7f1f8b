#pragma once

#include <mutex>

namespace tilewright {

/// Keeps SQLite's connections out of forks. SQLite remembers per process which locks it holds on a
/// file; a child that inherits an open connection relies on locks that only its parent holds, and
/// what it then commits is lost when the parent closes (sqlite.org/howtocorrupt.html, section 2.6).
///
/// While a ForkSentry lives, fork() waits for `mutex`, calls `close`, and releases the mutex in
/// both processes. `mutex` must be held around every use of the connection, and `close` must close
/// it completely. A sentry may be created and destroyed on any thread that does not hold its mutex.
class ForkSentry {
 public:
  ForkSentry(std::mutex& mutex, void (*close)(void*), void* context);
  ~ForkSentry();
  ForkSentry(const ForkSentry&) = delete;
  ForkSentry& operator=(const ForkSentry&) = delete;

 private:
  friend struct ForkHandlers;
  std::mutex& mutex_;
  void (*close_)(void*);
  void* context_;
};

}  // namespace tilewright
