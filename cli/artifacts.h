#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common.h"
#include "report.h"

namespace tilewright::cli {

/// Options of verbs that use compiled kernels.
struct ArtifactArguments {
  std::vector<std::string> bundles;
  std::vector<std::string> site_dirs;
  std::string shared_dir;
  bool site_by_group = false;
  bool shared_by_group = false;
  std::string nvrtc;
  int jobs = 0;
  bool whole = false;  ///< use only artifacts with PTX and source
};

/// The store of this user with the library's kernels. `mode`, if given, overrides --cache-mode.
Result<std::unique_ptr<ArtifactStore>> OpenArtifacts(const CommonOptions& common,
                                                     const ArtifactArguments& arguments,
                                                     const CacheMode* mode = nullptr);

/// Compiles with a progress bar and stops on a signal.
class CompileBar {
 public:
  explicit CompileBar(std::string label);
  ~CompileBar();
  CompileControl control();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "40 registers, 16 KiB shared, no spills"
std::string Describe(const ResourceUsage& resources);
/// Sets "spill_bytes": stores plus loads, null if unknown.
void SetSpills(const ResourceUsage& resources, Report& report);

}  // namespace tilewright::cli
