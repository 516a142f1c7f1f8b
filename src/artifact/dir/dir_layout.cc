#include "artifact/dir/dir_layout.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "core/atomic_file.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/text.h"

namespace tilewright {
namespace {

std::string Sharded(const std::string& folder, const ArtifactKey& key, std::string_view suffix) {
  const std::string hex = key.Hex();
  std::string path = folder;
  path.reserve(folder.size() + hex.size() + suffix.size() + 2);
  path.append("/").append(hex, 0, 2).append("/").append(hex, 2).append(suffix);
  return path;
}

/// The first 12 hexadecimal digits of a digest.
std::string ShortDigest(std::string_view a, std::string_view b) {
  const Result<Sha256Digest> digest = Sha256({a, std::string_view("\n"), b});
  return digest ? HexOf(*digest).substr(0, 12) : std::string(ProcessIdentity::kUnknown);
}

std::string TextOf(const char* path) {
  const Result<std::string> text = ReadFile(path, 4096);
  return text ? *text : "";
}

}  // namespace

DirLayout::DirLayout(const std::string& root_folder)
    : root(root_folder),
      base(root + "/v1"),
      entries(base + "/entries"),
      negatives(base + "/neg"),
      temporaries(base + "/tmp"),
      locks(base + "/lock"),
      quarantine(base + "/quarantine"),
      counters(base + "/counters") {}

std::string DirLayout::EntryPath(const ArtifactKey& action) const {
  return Sharded(entries, action, kEntrySuffix);
}
std::string DirLayout::NegativePath(const ArtifactKey& action) const {
  return Sharded(negatives, action, kNegativeSuffix);
}
std::string DirLayout::LockPath(int stripe) const { return locks + "/l." + std::to_string(stripe); }

std::string ParentOf(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::optional<ArtifactKey> KeyOfName(std::string_view shard, std::string_view name,
                                     std::string_view suffix) {
  if (shard.size() != 2 || name.size() != 62 + suffix.size() || !name.ends_with(suffix)) {
    return std::nullopt;
  }
  const std::string hex = std::string(shard).append(name.substr(0, 62));
  const Result<ArtifactKey> key = ParseArtifactKey(hex);
  // Only in the spelling that this library writes: no lookup would find any other.
  if (!key || key->Hex() != hex) return std::nullopt;
  return *key;
}

std::string TemporaryName(const ProcessIdentity& process) {
  std::array<std::uint64_t, 2> random{};
  if (getrandom(random.data(), sizeof random, GRND_NONBLOCK) !=
      static_cast<ssize_t>(sizeof random)) {
    // No random numbers, early after boot or in a sandbox. O_EXCL makes a repeated name an error.
    static std::atomic<std::uint64_t> counter{0};
    std::uint64_t seed =
        static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    seed ^= (static_cast<std::uint64_t>(getpid()) << 32) + counter.fetch_add(1);
    for (std::uint64_t& word : random) word = SplitMix64(seed);
  }
  return Format("{}.{}.{}.{:016x}{:016x}", process.host, process.boot, process.pid, random[0],
                random[1]);
}

bool OwnerIsDead(std::string_view name, const ProcessIdentity& self) {
  std::array<std::string_view, 4> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t dot = i + 1 < parts.size() ? name.find('.') : name.size();
    if (dot == std::string_view::npos) return false;
    parts[i] = name.substr(0, dot);
    name.remove_prefix(std::min(name.size(), dot + 1));
  }
  if (self.boot == ProcessIdentity::kUnknown) return false;
  if (parts[0] != self.host || parts[1] != self.boot) return false;
  std::int64_t pid = 0;
  const char* const end = parts[2].data() + parts[2].size();
  const auto [stop, error] = std::from_chars(parts[2].data(), end, pid);
  if (error != std::errc() || stop != end || pid <= 0 || pid > (std::int64_t{1} << 30)) {
    return false;
  }
  return kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

std::string Trust::Complaint(const Filesystem::Stat& stat) const {
  const auto writable = [&](std::string_view by) {
    return Format("mode is {:04o}: {} can write it", stat.mode & 07777, by);
  };
  switch (trusted) {
    case StoreDir::Trusted::kUser:
      if (stat.uid != uid) return Format("owner is uid {}, not {}", stat.uid, uid);
      return (stat.mode & 022) != 0 ? writable("others") : "";
    case StoreDir::Trusted::kGroup:
      return (stat.mode & 002) != 0 ? writable("everybody") : "";
    case StoreDir::Trusted::kOwner:
      if (!Believes(stat.uid)) {
        return Format("owner is uid {}, not that of the folder, {}", stat.uid, owner);
      }
      if ((stat.mode & 002) != 0) return writable("everybody");
      if ((stat.mode & 020) != 0 && !by_group) {
        return writable("its group") + std::string(Remedy());
      }
      return "";
  }
  return "";
}

std::string Trouble(std::string_view step, const std::string& path, int error) {
  return Format("cannot {} {}: {}", step, path, std::strerror(-error));
}

bool IsLasting(int error) {
  return error == -ENOSPC || error == -EDQUOT || error == -EROFS || error == -EACCES ||
         error == -EPERM;
}

ProcessIdentity ProcessIdentity::Current() {
  struct Machine {
    std::string host, boot;
  };
  static const Machine machine = [] {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
    // Processes in two containers on one host may have the same id; the namespace distinguishes
    // them.
    struct stat space {};
    const std::string pids =
        stat("/proc/self/ns/pid", &space) == 0 ? std::to_string(space.st_ino) : "";
    const std::string boot = TextOf("/proc/sys/kernel/random/boot_id");
    const bool told = !boot.empty() && !pids.empty();
    return Machine{ShortDigest(TextOf("/etc/machine-id"), name.data()),
                   told ? ShortDigest(boot, pids) : std::string(ProcessIdentity::kUnknown)};
  }();
  return {machine.host, machine.boot, getpid()};
}

}  // namespace tilewright
