#include "artifact/dir/trusted_path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <vector>

#include "artifact/dir/dir_files.h"
#include "core/text.h"

namespace tilewright {
namespace {

using Stat = Filesystem::Stat;

/// Stats the folder that a path leads to, following links.
int StatFolder(Filesystem& files, const std::string& path, Stat& stat) {
  const OpenFile folder(files, files.Open(path.c_str(), O_PATH | O_DIRECTORY, 0));
  return folder.fd() < 0 ? folder.fd() : files.StatFd(folder.fd(), stat);
}

/// A folder on the way up, and its name for messages.
struct Step {
  std::string shown;
  Stat stat;
};

/// The folder at `path` and all above it, up to "/". 0 or an error. Goes up by "..", which gives
/// the real parent whatever links led there.
int StepsUp(Filesystem& files, std::string path, std::string shown, std::vector<Step>& steps) {
  constexpr int kDeepest = 256;
  for (int depth = 0; depth < kDeepest; ++depth) {
    Step step{shown, {}};
    if (const int error = StatFolder(files, path, step.stat); error != 0) return error;
    const bool top = !steps.empty() && steps.back().stat.dev == step.stat.dev &&
                     steps.back().stat.ino == step.stat.ino;
    if (top) return 0;
    steps.push_back(std::move(step));
    path += "/..";
    shown = ParentOf(shown);
  }
  return -ENAMETOOLONG;
}

/// How users other than the trusted ones could replace `below` in that folder.
std::string Replaceable(const Step& folder, const Stat& below, const Trust& trust) {
  const std::uint32_t mode = folder.stat.mode & 07777;
  if (!trust.Believes(folder.stat.uid)) {
    return Format("its folder {} belongs to uid {}, who can replace it", folder.shown,
                  folder.stat.uid);
  }
  const bool everybody = (mode & S_IWOTH) != 0;
  const bool group = (mode & S_IWGRP) != 0 && !trust.by_group;
  if (!everybody && !group) return "";
  if ((mode & S_ISVTX) == 0) {
    return Format("its folder {} has mode {:04o}: {} can replace it{}", folder.shown, mode,
                  everybody ? "others" : "its group", everybody ? "" : trust.Remedy());
  }
  // Sticky: only the owner of `below` can replace it, whoever that is.
  if (trust.IsOurs(below.uid)) return "";
  return Format("belongs to uid {} in {}, where {} can create it: mode is {:04o}", below.uid,
                folder.shown, everybody ? "anybody" : "its group", mode);
}

/// The same for all folders on the way up; `below` is in the first.
std::string Replaceable(const std::vector<Step>& steps, Stat below, const Trust& trust) {
  for (const Step& step : steps) {
    if (std::string why = Replaceable(step, below, trust); !why.empty()) return why;
    below = step.stat;
  }
  return "";
}

}  // namespace

std::string ReplaceableRoot(Filesystem& files, const std::string& root, const Stat& root_stat,
                            Trust& trust) {
  trust.owner = root_stat.uid;
  // If the root is a link, its parent is that of the target. Otherwise go by its name, since this
  // user may not be allowed to enter it.
  Stat own;
  const bool linked = files.StatPath(root.c_str(), own) == 0 && own.IsSymlink();
  const std::string parent = ParentOf(root);
  std::vector<Step> steps;
  if (const int error = StepsUp(files, linked ? root + "/.." : parent, parent, steps); error != 0) {
    return Trouble("inspect the folders of", root, error);
  }
  trust.system = steps.back().stat.uid;
  if (std::string why = Replaceable(steps, root_stat, trust); !why.empty()) return why;
  // Symbolic links on the way: check each prefix of the path that is one.
  for (std::string path = root; path != "/" && path != "."; path = ParentOf(path)) {
    Stat link;
    if (const int error = files.StatPath(path.c_str(), link); error != 0) {
      return Trouble("inspect", path, error);
    }
    if (!link.IsSymlink()) continue;
    if (!trust.Believes(link.uid)) {
      return Format("the link {} belongs to uid {}", path, link.uid);
    }
    std::vector<Step> above;
    const std::string folder = ParentOf(path);
    if (const int error = StepsUp(files, folder, folder, above); error != 0) {
      return Trouble("inspect the folders of", path, error);
    }
    if (std::string why = Replaceable(above, link, trust); !why.empty()) return why;
  }
  return "";
}

}  // namespace tilewright
