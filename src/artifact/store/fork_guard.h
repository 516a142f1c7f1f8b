#pragma once

namespace tilewright {

/// Notified around every fork of this process (pthread_atfork). Only the forking thread exists in
/// the child: locks that other threads held stay locked for ever, and their work is never finished.
class ForkAware {
 public:
  ForkAware(const ForkAware&) = delete;
  ForkAware& operator=(const ForkAware&) = delete;

  virtual void BeforeFork() = 0;         ///< take the locks that guard what the child will use
  virtual void AfterForkInParent() = 0;  ///< release them
  virtual void AfterForkInChild() = 0;   ///< release them and drop the state of other threads

 protected:
  ForkAware() = default;
  virtual ~ForkAware() = default;
  /// Call at the end of the final class's constructor, and at the start of its destructor.
  void Watch();
  void Unwatch();
};

}  // namespace tilewright
