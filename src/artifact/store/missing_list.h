#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/filesystem.h"
#include "tilewright/result.h"

namespace tilewright {

/// The file in which strict mode lists missing kernels: one SpecName per line, each once, however
/// many processes add it. ParseSpecList reads it. Any thread.
class MissingList {
 public:
  MissingList(std::string path, Filesystem& files) : path_(std::move(path)), files_(files) {}

  const std::string& path() const { return path_; }

  /// Adds `spec_name` unless it is listed already. kIo names the file and the reason.
  Status Note(const std::string& spec_name);

 private:
  Status Append(const std::string& spec_name);

  const std::string path_;
  Filesystem& files_;
  std::mutex mutex_;
  std::unordered_set<std::string> noted_;  // by this process
};

}  // namespace tilewright
