#pragma once

#include <string>
#include <vector>

#include "tilewright/tilewright.h"
#include "tilewright/tune.h"

namespace tilewright {

/// What a worker opens: a part of the options of its parent's context, and how it measures.
struct WorkerSettings {
  ContextOptions context;
  MeasurerOptions measure;
};

/// As names and values in turn, for the message "open" (docs/worker.md), and back: what is not in
/// the message keeps the value it has in `settings`. kInvalidArgument names a setting that is
/// unknown or has no such value.
std::vector<std::string> WordsOf(const WorkerSettings& settings);
Status TakeWords(const std::vector<std::string>& words, WorkerSettings& settings);

/// The identity of this build as far as measurements depend on it: version, every kernel's
/// translation unit, every CUDA source.
Result<std::string> BuildIdentity();

}  // namespace tilewright
