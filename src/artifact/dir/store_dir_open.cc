#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "artifact/dir/store_dir_impl.h"
#include "artifact/dir/trusted_path.h"
#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::string_view kFormatWords = "tilewright artifacts ";
constexpr std::string_view kFormat = "tilewright artifacts 1\n";
// The first line tells backup tools to skip the folder: bford.info/cachedir.
constexpr std::string_view kCacheDirTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Compiled kernels of Tilewright. Everything here can be made again.\n";

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

StoreDir::Options Completed(StoreDir::Options options) {
  if (options.files == nullptr) options.files = &SystemFilesystem();
  // Larger totals cannot be counted (total.h), so a higher cap could not be enforced.
  const auto limit = [](std::uint64_t cap, const TotalFormat& format) {
    return std::min(cap, static_cast<std::uint64_t>(format.Max()));
  };
  options.max_entries = limit(options.max_entries, kEntriesFormat);
  options.max_bytes = limit(options.max_bytes, kBytesFormat);
  // Sums with the time of day must not overflow.
  constexpr std::int64_t kLongestTtl = 1'000'000'000'000;
  options.negative_ttl_s = std::clamp<std::int64_t>(options.negative_ttl_s, 0, kLongestTtl);
  return options;
}

}  // namespace

StoreDir::Impl::Impl(const std::string& root, Options wanted)
    : options(Completed(std::move(wanted))),
      files(*options.files),
      layout(WithoutSlashes(root)),
      trust{.trusted = options.trusted, .uid = geteuid(), .by_group = options.by_group},
      locks(files, layout),
      counters(files, layout.counters, trust,
               {[this](const std::string& path, std::string_view bytes) {
                  // Both run with the mutex held, so they must not count or refuse anything.
                  TemporaryFile temporary(files);
                  const char* step = "";
                  const std::string name = layout.temporaries + "/" + TemporaryName(Process());
                  int error = temporary.Write(name, {bytes, Now(), file_mode, false}, step);
                  if (error != 0) return error;
                  error = files.RenameNoReplace(name.c_str(), path.c_str());
                  if (error == 0) temporary.Renamed();
                  return error;
                },
                [this](const std::string& path, const Filesystem::Stat& stat) {
                  return Quarantine(path, stat, false);
                }},
               locks.mutex()) {}

ProcessIdentity StoreDir::Impl::Process() const {
  // Evaluated each time: the child of a fork has another identity.
  return options.process.host.empty() ? ProcessIdentity::Current() : options.process;
}

std::string StoreDir::Impl::Reason() const {
  const std::lock_guard lock(locks.mutex());
  return reason;
}

void StoreDir::Impl::Leave(State next, const std::string& why) {
  const std::lock_guard lock(locks.mutex());
  if (state.load() == State::kRefused || state.load() == next) return;
  reason = why;
  state.store(next);
}

std::string StoreDir::Impl::Failed(std::string_view step, const std::string& path, int error) {
  if (!writable()) return Reason();
  std::string text = Trouble(step, path, error);
  // A file of one group member may be inaccessible to another, who may still access the next one;
  // but nothing works without tmp/.
  const bool one_file =
      for_group() && (error == -EACCES || error == -EPERM) && ParentOf(path) != layout.temporaries;
  if (IsLasting(error) && !one_file) Leave(State::kReadOnly, text);
  return text;
}

int StoreDir::Impl::MakeDirs(const std::string& path) {
  Filesystem::Stat stat;
  // Checked first: on a read-only file system mkdir returns EROFS even for a folder that exists.
  if (files.StatPath(path.c_str(), stat) == 0) return 0;
  int error = files.MakeDir(path.c_str(), 0700);
  const std::string parent = ParentOf(path);
  if (error == -ENOENT && parent != path) {
    error = MakeDirs(parent);
    if (error == 0) error = files.MakeDir(path.c_str(), 0700);
  }
  return error == -EEXIST ? 0 : error;
}

bool StoreDir::Impl::OpenRoot() {
  const std::string& root = layout.root;
  Filesystem::Stat stat;
  int error = files.StatPath(root.c_str(), stat);
  if (error == -ENOENT && options.access == Access::kReadWrite && !for_group()) {
    error = MakeDirs(root);
    if (error != 0) {
      Leave(State::kReadOnly, Trouble("create", root, error));
      return false;
    }
    error = files.StatPath(root.c_str(), stat);
  }
  if (error == -ENOENT) {
    Leave(State::kReadOnly, Format("{}: does not exist", root));
    return false;
  }
  if (error == 0 && stat.IsSymlink() && options.trusted != Trusted::kUser) {
    OpenFile folder(files, files.Open(root.c_str(), O_PATH | O_DIRECTORY, 0));
    error = folder.fd() < 0 ? folder.fd() : files.StatFd(folder.fd(), stat);
  }
  if (error != 0) {
    Refuse(Trouble("inspect", root, error));
    return false;
  }
  if (stat.IsSymlink() || !stat.IsDirectory()) {
    Refuse(Format("{}: {}", root, stat.IsSymlink() ? "is a symbolic link" : "is not a folder"));
    return false;
  }
  // A folder that may belong to another user is known only by its path: anyone who could put
  // another folder in its place would be trusted instead.
  if (options.trusted == Trusted::kUser) {
    trust.owner = trust.uid;
  } else {
    trust.by_group = trust.by_group || for_group();
    if (const std::string why = ReplaceableRoot(files, root, stat, trust); !why.empty()) {
      Refuse(Format("{}: {}", root, why));
      return false;
    }
  }
  if (const std::string complaint = trust.Complaint(stat); !complaint.empty()) {
    Refuse(Format("{}: {}", root, complaint));
    return false;
  }
  if (for_group()) {
    // If several users share the folder, its mode defines who has access.
    file_mode = (stat.mode & 0666) | 0600;
    folder_mode = (stat.mode & 02777) | 0700;
    group = stat.gid;
  }
  if (options.trusted == Trusted::kUser && !CheckParent()) return false;
  root_checked = true;
  return true;
}

/// Users who can rename entries of the parent could put another folder of this user in place of
/// this one.
bool StoreDir::Impl::CheckParent() {
  const std::string parent = ParentOf(layout.root);
  Filesystem::Stat stat;
  OpenFile folder(files, files.Open(parent.c_str(), O_PATH | O_DIRECTORY, 0));
  const int error = folder.fd() < 0 ? folder.fd() : files.StatFd(folder.fd(), stat);
  if (error != 0) {
    Refuse(Trouble("inspect", parent, error));
    return false;
  }
  if ((stat.mode & S_IWOTH) == 0 || (stat.mode & S_ISVTX) != 0) return true;
  Refuse(Format("{}: its folder {} has mode {:04o}: others can replace it", layout.root, parent,
                stat.mode & 07777));
  return false;
}

int StoreDir::Impl::EnsureFolder(const std::string& path, bool create) {
  Filesystem::Stat stat;
  for (int attempt = 0;; ++attempt) {
    const int error = files.StatPath(path.c_str(), stat);
    if (error == 0) break;
    if (error != -ENOENT || !create || attempt == 2) return error;
    const int made = files.MakeDir(path.c_str(), folder_mode);
    if (made != 0 && made != -EEXIST) return made;
    if (made == 0 && for_group()) OpenToGroup(path);
    if (made == 0 && options.durable) SyncFolder(ParentOf(path));
  }
  const std::string complaint = stat.IsSymlink()     ? "is a symbolic link"
                                : stat.IsDirectory() ? trust.Complaint(stat)
                                                     : "is not a folder";
  if (complaint.empty()) return 0;
  Refuse(Format("{}: {}", path, complaint));
  return -EPERM;
}

void StoreDir::Impl::OpenToGroup(const std::string& path) const {
  // If it was swapped meanwhile for a folder of ours that was never meant for this group, or that
  // is not empty, keep its mode.
  const OpenFile folder(files, files.Open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
  Filesystem::Stat stat;
  std::vector<std::string> names;
  if (folder.fd() < 0 || files.StatFd(folder.fd(), stat) != 0 || stat.uid != trust.uid ||
      stat.gid != group || files.List(path.c_str(), names) != 0 || !names.empty()) {
    return;
  }
  (void)files.SetMode(folder.fd(), folder_mode);
}

int StoreDir::Impl::EnsureTree() {
  if (!for_group()) {
    if (const int error = MakeDirs(layout.root); error != 0) return error;
  }
  for (const std::string* folder : {&layout.root, &layout.base, &layout.entries, &layout.negatives,
                                    &layout.temporaries, &layout.locks, &layout.quarantine}) {
    if (for_group() && folder == &layout.root) continue;  // may be a link
    if (const int error = EnsureFolder(*folder, true); error != 0) return error;
  }
  return 0;
}

void StoreDir::Impl::CheckShards(const std::string& folder) {
  std::vector<std::string> shards;
  if (files.List(folder.c_str(), shards) != 0) return;  // reading a shard checks it again
  for (const std::string& shard : shards) {
    if (state.load() == State::kRefused) return;
    if (shard.size() == 2) (void)EnsureFolder(folder + "/" + shard, false);
  }
}

int StoreDir::Impl::WriteSmallFile(const std::string& path, std::string_view text) {
  TemporaryFile temporary(files);
  const char* step = "";
  int error = temporary.Write(layout.temporaries + "/" + TemporaryName(Process()),
                              {text, Now(), file_mode, options.durable}, step);
  if (error != 0) return error;
  error = mends() ? files.Rename(temporary.path().c_str(), path.c_str())
                  : files.RenameNoReplace(temporary.path().c_str(), path.c_str());
  if (error == 0) temporary.Renamed();
  return error == -EEXIST ? 0 : error;
}

/// False if the store is of a newer version.
bool StoreDir::Impl::CheckFormat() {
  const std::string path = layout.base + "/format";
  FileReader reader;
  const FileReader::Outcome outcome = reader.Read(files, path, trust, 4096);
  const std::string_view text = reader.bytes.view();
  if (outcome == FileReader::Outcome::kRead && text.starts_with(kFormatWords)) {
    const std::string_view number = text.substr(kFormatWords.size());
    unsigned version = 0;
    (void)std::from_chars(number.data(), number.data() + number.size(), version);
    if (version > 1) {
      Refuse(Format("{}: format {}; this version supports format 1", path, version));
      return false;
    }
  }
  if (text == kFormat || !writable()) return true;
  // Absent, or emptied by a power failure: the folder's name already gives the format.
  for (const auto& [name, content] :
       {std::pair(path, kFormat), std::pair(layout.base + "/CACHEDIR.TAG", kCacheDirTag)}) {
    const int error = WriteSmallFile(name, content);
    if (error != 0) (void)Failed("write", name, error);
  }
  return true;
}

void StoreDir::Impl::Open() {
  if (layout.root.empty()) return Refuse("no folder was named");
  if (!OpenRoot()) return;
  int error =
      options.access == Access::kReadWrite ? EnsureTree() : EnsureFolder(layout.base, false);
  if (error == 0 && options.access == Access::kReadOnly) (void)EnsureFolder(layout.entries, false);
  if (options.access == Access::kReadOnly) {
    if (error != 0) Leave(State::kReadOnly, Trouble("open", layout.base, error));
    Leave(State::kReadOnly, "");
  } else if (error != 0) {
    Leave(State::kReadOnly, Trouble("create", layout.root, error));
  }
  if (state.load() == State::kRefused) return;
  if (options.trusted != Trusted::kOwner) {
    CheckShards(layout.entries);
    CheckShards(layout.negatives);
  }
  if (state.load() == State::kRefused || !CheckFormat() || !writable()) return;
  if (for_group()) return;  // another user who truncates a mapped file would kill this process
  error = counters.Open();
  if (error == -EROFS || error == -EACCES || error == -EPERM) {
    (void)Failed("open", layout.counters, error);
  }
}

}  // namespace tilewright
