#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tilewright/worker.h"

namespace tilewright::worker {

/// What both ends of a connection must agree about.
struct Terms {
  std::string build;                  ///< of the library: both must have been built from the same
  std::vector<std::string> settings;  ///< names and values in turn: the device that is opened
  std::string device_class;           ///< DeviceSpec::ClassId of it
};

/// Finds the program, starts it and compares builds; the device is opened when the first problem is
/// prepared. kUnavailable if there is no program or it cannot be started, kUnsupported naming both
/// builds where they differ.
Result<std::unique_ptr<MeasureWorker>> StartWorker(const WorkerOptions& options, Terms terms);

}  // namespace tilewright::worker
