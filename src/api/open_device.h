#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tilewright/tilewright.h"

namespace tilewright {

/// A device as a context holds it, with the kernels that run there. Members are destroyed last to
/// first: kernels refer to the store.
struct OpenedDevice {
  std::string name;                      ///< "cpu", "cuda:0"
  std::string note;                      ///< why it is this one, where the caller left that open
  std::unique_ptr<ArtifactStore> store;  ///< where kernels are compiled at run time
  std::unique_ptr<Kernels> kernels;
  std::unique_ptr<Device> device;
  std::string libraries;    ///< RecordScope::libraries
  bool calibrated = false;  ///< its rates were measured, now or earlier
};

/// The device that `options` names. `folder` is the cache folder, "" if there is none; `executor`
/// does what is done on the host. Appends to `warnings` what is no error. Errors as
/// Context::Create.
Result<OpenedDevice> OpenDevice(const ContextOptions& options, const std::string& folder,
                                Executor& executor, std::vector<std::string>& warnings);

/// Whether nothing may be written to the cache folder in this mode.
bool WritesNothing(CacheMode mode);

/// The bundle that was installed with this library, or lies beside the program or the library; ""
/// if there is none.
std::string InstalledBundle();

}  // namespace tilewright
