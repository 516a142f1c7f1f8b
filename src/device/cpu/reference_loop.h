#pragma once

#include "tilewright/device_spec.h"

namespace tilewright {

/// A loop of fixed work in registers, to time beside samples: how fast the machine is now. On the
/// unit that is throttled first: AMX where there is one, in the form that a shared core slows down most, else the
/// widest f32 multiplications.
class ReferenceLoop {
 public:
  explicit ReferenceLoop(const DeviceSpec& device);

  /// Microseconds that it takes now, some 15, on the worker that is slowest at it; each does it some times,
  /// and the best counts, since an interrupt is no mode of a machine. 0: this processor has no loop.
  double Us(Executor& executor) const;

 private:
  void (*run_)(int rounds) = nullptr;
  int rounds_ = 0;
};

}  // namespace tilewright
