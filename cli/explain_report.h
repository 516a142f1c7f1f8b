#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verbs.h"

namespace tilewright::cli {

/// A choice in words.
struct Chosen {
  std::string kernel, spec;
  Provenance provenance = Provenance::kDefault;
  std::int32_t source_batch = 0;
  std::string why;
};

/// Everything `explain` looked at, of whatever operation.
struct Explained {
  std::string problem;  ///< KeyOf
  DeviceSpec device;
  RecordScope scope;
  std::optional<Chosen> choice;
  std::string no_choice;     ///< why there is none
  std::string measuring;     ///< the command that measures it; "" where there is none
  std::string other_policy;  ///< the one under which it was measured, if not under that of `scope`
  std::vector<CandidateReport> rows;
  bool here = true;  ///< the device is this machine
};

/// Prints it as a table or as JSON and returns the exit code.
int PrintExplained(const Explained& look, const ExplainOptions& options);

}  // namespace tilewright::cli
