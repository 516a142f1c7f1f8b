#pragma once

namespace tilewright {

/// Told around every fork of this process (pthread_atfork). A child is a copy of one thread: locks
/// that others held stay held in it for ever, and what others were doing is never finished.
class ForkAware {
 public:
  ForkAware(const ForkAware&) = delete;
  ForkAware& operator=(const ForkAware&) = delete;

  virtual void BeforeFork() = 0;         ///< take the locks that guard what the child will use
  virtual void AfterForkInParent() = 0;  ///< give them back
  virtual void AfterForkInChild() = 0;   ///< give them back and drop what only threads knew

 protected:
  ForkAware() = default;
  virtual ~ForkAware() = default;
  /// From the constructor's end and the destructor's begin of the final class.
  void Watch();
  void Unwatch();
};

}  // namespace tilewright
