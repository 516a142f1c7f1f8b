#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/dir/store_dir.h"
#include "core/faulty_filesystem.h"

/// Helpers for tests only.

namespace tilewright::test {

/// A temporary folder, removed with its contents.
class TempFolder {
 public:
  /// kMemory: on a file system in memory where there is one, for tests that make thousands of
  /// stores.
  enum class Place { kDisk, kMemory };
  explicit TempFolder(Place place = Place::kDisk);
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();
  const std::string& path() const { return path_; }
  std::string Sub(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

struct Entry {
  ArtifactKey action;
  std::string bytes;
};

/// A sound entry; `number` decides its key, `cubin_bytes` its size. Two of one number and different
/// sizes have the same key and different bytes.
Entry MakeTestEntry(int number, std::size_t cubin_bytes = 300);

/// Where an entry or a refusal is, below a root.
std::string EntryPath(const std::string& root, const ArtifactKey& action);
std::string NegativePath(const std::string& root, const ArtifactKey& action);

std::vector<std::string> NamesIn(const std::string& folder);
void WriteText(const std::string& path, std::string_view text);
std::string ReadText(const std::string& path);
/// Permissions, of a link its own; 0 where there is nothing.
mode_t ModeOf(const std::string& path);
/// Sets a file's time stamp.
void SetStamp(const std::string& path, std::int64_t unix_s);
std::int64_t StampOf(const std::string& path);
int OpenDescriptors();

/// Runs `work` in a forked child that then leaves without destructors; its wait status. An exit
/// code of 0 where `work` came to its end, 1 where it threw or a GoogleTest assertion failed in it.
int InChild(const std::function<void()>& work);
/// Forks; the child does `work` and must then be waited for with WaitFor.
pid_t StartChild(const std::function<void()>& work);
int WaitFor(pid_t child);
bool WasKilled(int status);
bool EndedWell(int status);

/// "hit", or what the lookup said instead.
std::string Look(StoreDir& dir, const Entry& entry);

/// A root that does not exist yet, and a file system in which calls can be made to fail.
class StoreDirTest : public testing::Test {
 protected:
  std::unique_ptr<StoreDir> Open() const { return Open(root_); }
  static std::unique_ptr<StoreDir> Open(const std::string& root) {
    return StoreDir::Open(root, {});
  }
  std::unique_ptr<StoreDir> OpenFaulty(StoreDir::Options options = {}) {
    options.files = &files_;
    return StoreDir::Open(root_, std::move(options));
  }

  const TempFolder folder_;
  const std::string root_ = folder_.Sub("deep/er/store");
  FaultyFilesystem files_;
};

}  // namespace tilewright::test
