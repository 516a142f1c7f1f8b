#pragma once

namespace tilewright {

/// A device that knows when it runs slower than it can, as a GPU without enough power or cooling
/// does: what was timed meanwhile does not count. Any thread.
class TellsSlowdown {
 public:
  /// Whether it does now; false where nothing is known of it.
  virtual bool Slowed() = 0;

 protected:
  ~TellsSlowdown() = default;
};

}  // namespace tilewright
