// Damaged files are set aside; they count against the caps until they are removed.

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "artifact/dir/store_dir_impl.h"
#include "core/text.h"

namespace tilewright {
bool StoreDir::Impl::Discard(const std::string& path, const Filesystem::Stat& stat) {
  return (stat.IsDirectory() ? files.RemoveDir(path.c_str()) : files.Unlink(path.c_str())) == 0;
}

bool StoreDir::Impl::Quarantine(const std::string& path, const Filesystem::Stat& stat,
                                bool make_folder) {
  if (!mends()) return false;
  const auto same = [&](const std::string& name) {
    Filesystem::Stat there;
    return files.StatPath(name.c_str(), there) == 0 && there.dev == stat.dev &&
           there.ino == stat.ino;
  };
  if (!same(path)) return false;
  std::string name = path.substr(std::min(path.size(), layout.base.size() + 1));
  std::replace(name.begin(), name.end(), '/', '-');
  const std::string random = TemporaryName(Process());
  const std::string target =
      Format("{}/{}.{}.{}", layout.quarantine, Now(), name, random.substr(random.size() - 16));
  int error = files.RenameNoReplace(path.c_str(), target.c_str());
  if (error == -ENOENT && make_folder && EnsureFolder(layout.quarantine, true) == 0) {
    error = files.RenameNoReplace(path.c_str(), target.c_str());
  }
  if (same(target)) return true;  // whatever the rename returned: its reply may be lost
  if (error != 0) return false;
  // Another file was put there between the check and the rename: move it back, unless there is yet
  // another one. A survey may miss it meanwhile.
  (void)files.RenameNoReplace(target.c_str(), path.c_str());
  if (make_folder) DoubtTotals();  // else the caller holds the lock of the counters
  return false;
}

void StoreDir::Impl::QuarantineUncounted(const std::string& path, const Filesystem::Stat& stat) {
  const auto size = static_cast<std::int64_t>(stat.size);
  const bool counts = stat.IsRegular();
  if (counts) AddTotals(1, size);
  if (!Quarantine(path, stat)) {
    if (counts) AddTotals(-1, -size);
  } else if (capped()) {
    DropQuarantined(0, 0);
  }
}

std::vector<StoreDir::Impl::SetAside> StoreDir::Impl::ListQuarantine() const {
  std::vector<std::string> names;
  std::vector<SetAside> files_there;
  if (files.List(layout.quarantine.c_str(), names) != 0) return files_there;
  const std::int64_t now = Now();
  for (const std::string& name : names) {
    SetAside file;
    // The name says when the file was set aside; its time stamp may be much older. A name without a
    // time counts as the oldest.
    (void)std::from_chars(name.data(), name.data() + name.size(), file.since_s);
    file.path = layout.quarantine + "/" + name;
    if (files.StatPath(file.path.c_str(), file.stat) == 0) files_there.push_back(std::move(file));
  }
  std::sort(files_there.begin(), files_there.end(), [](const SetAside& a, const SetAside& b) {
    return std::tie(a.since_s, a.path) < std::tie(b.since_s, b.path);
  });
  for (std::size_t i = 0; i < files_there.size(); ++i) {
    SetAside& file = files_there[i];
    const bool old =
        file.since_s < now - kQuarantineSeconds || file.since_s > now + kQuarantineSeconds;
    file.expired = old || files_there.size() - i > kQuarantineFiles;
  }
  return files_there;
}

bool StoreDir::Impl::RemoveSetAside(const SetAside& file) {
  if (file.stat.IsRegular()) return RemoveCounted(file.path, file.stat.size) == 0;
  return Discard(file.path, file.stat);
}

void StoreDir::Impl::DropQuarantined(std::int64_t entries, std::int64_t bytes) {
  if (!mends() || Fits(entries, bytes)) return;
  for (const SetAside& file : ListQuarantine()) {
    if (Fits(entries, bytes)) return;
    if (file.stat.IsRegular()) (void)RemoveSetAside(file);
  }
}

std::uint64_t StoreDir::Impl::SweepQuarantine(bool dry_run) {
  std::uint64_t removed = 0;
  for (const SetAside& file : ListQuarantine()) {
    if (file.expired && (dry_run || RemoveSetAside(file))) ++removed;
  }
  return removed;
}

}  // namespace tilewright
