#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/filesystem.h"

/// Helper for tests only; no library file includes this header.

namespace tilewright::test {

/// The write that is about to be made, so that the process can be killed in the middle of it.
struct PendingWrite {
  int fd = -1;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// A Filesystem that counts its calls and makes one of them, or all from a given one on, fail. Arm
/// it while no other thread uses it; the calls themselves are safe from any thread.
///
///   FaultyFilesystem files;
///   files.Arm({.kind = Fault::kError, .step = 3, .error = ENOSPC});   // the third call from now
///   dir->Publish(...);
///   files.Disarm();
class FaultyFilesystem final : public Filesystem {
 public:
  enum class Call {
    kOpen,
    kClose,
    kRead,
    kWrite,
    kSync,
    kStatFd,
    kStatPath,
    kMakeDir,
    kRemoveDir,
    kRenameNoReplace,
    kRename,
    kUnlink,
    kSetMode,
    kSetTime,
    kList,
    kMap,
    kUnmap,
    kTryLock,
    kUnlock
  };
  struct Fault {
    enum Kind {
      kNone,
      kError,        ///< the call is not made and fails with `error`
      kErrorAfter,   ///< the call is made, but its success is reported as `error` (a lost reply)
      kShort,        ///< reads and writes transfer one byte, other calls are made normally
      kKill,         ///< the process gets SIGKILL instead of the call
      kKillHalfway,  ///< as kKill, but a write writes half its bytes first
      kHook,         ///< `hook` is called before the call is made
    };
    Kind kind = kNone;
    std::int64_t step = 1;          ///< number of the matching call, from 1
    int error = EIO;                ///< positive
    bool lasting = false;           ///< this call and all later ones that match
    std::optional<Call> only = {};  ///< match calls of this kind only
    std::string path_part = {};     ///< match calls whose (first) path contains this
    std::function<void()> hook = {};
  };

  explicit FaultyFilesystem(Filesystem& base = SystemFilesystem()) : base_(base) {}

  void Arm(Fault fault) {
    fault_ = std::move(fault);
    steps_ = 0;
    fired_ = 0;
    armed_ = true;
  }
  void Disarm() { armed_ = false; }
  std::int64_t steps() const { return steps_; }  ///< matching calls since Arm
  std::int64_t fired() const { return fired_; }  ///< faults since Arm
  std::int64_t calls() const { return calls_; }  ///< of any kind, ever
  std::int64_t bytes_read() const { return bytes_read_; }

  /// A call that was made and succeeded.
  struct Event {
    Call call;
    std::string path;  ///< for a descriptor, the path that it was opened with
    std::string to;    ///< target of a rename
  };
  /// From now on, keeps a list of syncs, closes and the calls that change what is on disk.
  void Record() {
    const std::lock_guard lock(record_mutex_);
    recording_ = true;
    events_.clear();
  }
  std::vector<Event> events() const {
    const std::lock_guard lock(record_mutex_);
    return events_;
  }

  /// Sets the clock; 0: the system's.
  void SetNow(std::int64_t now) { now_ = now; }
  /// Changes what StatPath and StatFd report.
  std::function<void(Stat&)> stat_filter;

  int Open(const char* path, int flags, mode_t mode) override {
    const int fd = Do(
        Call::kOpen, path, [&] { return base_.Open(path, flags, mode); },
        [&](int undone) { base_.Close(undone); });
    if (fd >= 0) NoteOpen(fd, path);
    return fd;
  }
  int Close(int fd) override {
    // As in Linux, a close that fails has closed the descriptor nevertheless.
    const int error = Before(Call::kClose, "");
    Note(error, Call::kClose, PathOf(fd));
    const int result = base_.Close(fd);
    return error != 0 ? error : result;
  }
  ssize_t Read(int fd, void* data, std::size_t bytes, std::int64_t offset) override {
    if (const int error = Before(Call::kRead, ""); error != 0) return error;
    const ssize_t got =
        base_.Read(fd, data, short_ ? std::min<std::size_t>(bytes, 1) : bytes, offset);
    if (got > 0) bytes_read_ += got;
    return got;
  }
  ssize_t Write(int fd, const void* data, std::size_t bytes) override {
    halfway_ = {fd, data, bytes};
    if (const int error = Before(Call::kWrite, ""); error != 0) return error;
    const ssize_t put = base_.Write(fd, data, short_ ? std::min<std::size_t>(bytes, 1) : bytes);
    Note(put < 0 ? -1 : 0, Call::kWrite, PathOf(fd));
    return put;
  }
  int Sync(int fd) override {
    return Note(Do(Call::kSync, "", [&] { return base_.Sync(fd); }), Call::kSync, PathOf(fd));
  }
  int StatFd(int fd, Stat& out) override {
    const int result = Do(Call::kStatFd, "", [&] { return base_.StatFd(fd, out); });
    if (result == 0 && stat_filter) stat_filter(out);
    return result;
  }
  int StatPath(const char* path, Stat& out) override {
    const int result = Do(Call::kStatPath, path, [&] { return base_.StatPath(path, out); });
    if (result == 0 && stat_filter) stat_filter(out);
    return result;
  }
  int MakeDir(const char* path, mode_t mode) override {
    return Note(Do(Call::kMakeDir, path, [&] { return base_.MakeDir(path, mode); }), Call::kMakeDir,
                path);
  }
  int RemoveDir(const char* path) override {
    return Do(Call::kRemoveDir, path, [&] { return base_.RemoveDir(path); });
  }
  int RenameNoReplace(const char* from, const char* to) override {
    return Note(Do(Call::kRenameNoReplace, from, [&] { return base_.RenameNoReplace(from, to); }),
                Call::kRenameNoReplace, from, to);
  }
  int Rename(const char* from, const char* to) override {
    return Note(Do(Call::kRename, from, [&] { return base_.Rename(from, to); }), Call::kRename,
                from, to);
  }
  int Unlink(const char* path) override {
    return Do(Call::kUnlink, path, [&] { return base_.Unlink(path); });
  }
  int SetMode(int fd, mode_t mode) override {
    return Do(Call::kSetMode, "", [&] { return base_.SetMode(fd, mode); });
  }
  int SetTime(int fd, std::int64_t mtime_s) override {
    return Do(Call::kSetTime, "", [&] { return base_.SetTime(fd, mtime_s); });
  }
  int List(const char* path, std::vector<std::string>& names) override {
    return Do(Call::kList, path, [&] { return base_.List(path, names); });
  }
  void* Map(int fd, std::size_t bytes, bool writable, int& error) override {
    error = Before(Call::kMap, "");
    return error != 0 ? nullptr : base_.Map(fd, bytes, writable, error);
  }
  int Unmap(void* data, std::size_t bytes) override {
    const int error = Before(Call::kUnmap, "");
    const int result = base_.Unmap(data, bytes);
    return error != 0 ? error : result;
  }
  int TryLockRange(int fd, std::uint64_t start) override {
    return Do(Call::kTryLock, "", [&] { return base_.TryLockRange(fd, start); });
  }
  int UnlockRange(int fd, std::uint64_t start) override {
    return Do(Call::kUnlock, "", [&] { return base_.UnlockRange(fd, start); });
  }
  std::int64_t NowUnixSeconds() override {
    const std::int64_t now = now_;
    return now != 0 ? now : base_.NowUnixSeconds();
  }

 private:
  bool Matches(Call call, std::string_view path) const {
    return (!fault_.only || *fault_.only == call) &&
           path.find(fault_.path_part) != std::string_view::npos;
  }

  /// 0, or the error that the call must return. Sets short_ for this thread's call.
  int Before(Call call, std::string_view path) {
    ++calls_;
    short_ = false;
    after_ = 0;
    if (!armed_ || !Matches(call, path)) return 0;
    const std::int64_t step = ++steps_;
    if (fault_.lasting ? step < fault_.step : step != fault_.step) return 0;
    ++fired_;
    switch (fault_.kind) {
      case Fault::kNone:
        return 0;
      case Fault::kError:
        return -fault_.error;
      case Fault::kErrorAfter:
        after_ = -fault_.error;
        return 0;
      case Fault::kShort:
        short_ = true;
        return 0;
      case Fault::kKillHalfway:
        if (call == Call::kWrite) (void)base_.Write(halfway_.fd, halfway_.data, halfway_.bytes / 2);
        [[fallthrough]];
      case Fault::kKill:
        kill(getpid(), SIGKILL);
        pause();
        return 0;
      case Fault::kHook: {
        armed_ = false;  // calls made by the hook do not count
        fault_.hook();
        armed_ = true;
        return 0;
      }
    }
    return 0;
  }

  void NoteOpen(int fd, const char* path) {
    const std::lock_guard lock(record_mutex_);
    paths_[fd] = path;
  }
  std::string PathOf(int fd) const {
    const std::lock_guard lock(record_mutex_);
    const auto it = paths_.find(fd);
    return it == paths_.end() ? "" : it->second;
  }
  int Note(int result, Call call, std::string path, std::string to = {}) {
    const std::lock_guard lock(record_mutex_);
    if (recording_ && result == 0) events_.push_back({call, std::move(path), std::move(to)});
    return result;
  }

  template <class Make>
  int Do(Call call, std::string_view path, Make make) {
    return Do(call, path, make, [](int) {});
  }
  template <class Make, class Undo>
  int Do(Call call, std::string_view path, Make make, Undo undo) {
    if (const int error = Before(call, path); error != 0) return error;
    const int after = after_;  // `make` may call this function again
    const int result = make();
    if (result < 0 || after == 0) return result;
    undo(result);
    return after;
  }

  static inline thread_local bool short_ = false;
  static inline thread_local int after_ = 0;
  static inline thread_local PendingWrite halfway_;

  Filesystem& base_;
  mutable std::mutex record_mutex_;
  bool recording_ = false;
  std::map<int, std::string> paths_;
  std::vector<Event> events_;
  Fault fault_;
  std::atomic<bool> armed_{false};
  std::atomic<std::int64_t> steps_{0}, fired_{0}, calls_{0}, bytes_read_{0}, now_{0};
};

using Fault = FaultyFilesystem::Fault;

/// The index, from `first` on, of the first such call with `part` in its path (for a rename, in its
/// target); events.size() if there is none.
inline std::size_t PlaceOf(const std::vector<FaultyFilesystem::Event>& events,
                           FaultyFilesystem::Call call, std::string_view part,
                           std::size_t first = 0) {
  std::size_t i = first;
  for (; i < events.size(); ++i) {
    const std::string& path = events[i].to.empty() ? events[i].path : events[i].to;
    if (events[i].call == call && path.find(part) != std::string::npos) break;
  }
  return i;
}

}  // namespace tilewright::test
