#include "core/paths.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/env.h"
#include "core/text.h"

namespace tilewright {

Result<std::string> CacheDir() {
  if (auto own = GetEnv("TILEWRIGHT_CACHE_DIR")) return *own;
  if (auto xdg = GetEnv("XDG_CACHE_HOME"); xdg && xdg->front() == '/') return *xdg + "/tilewright";
  if (auto home = GetEnv("HOME"); home && home->front() == '/') return *home + "/.cache/tilewright";
  return Fail(ErrorCode::kUnavailable,
              "no cache folder: set TILEWRIGHT_CACHE_DIR, or XDG_CACHE_HOME or HOME to an absolute "
              "path");
}

Status MakeDirs(const std::string& path) {
  if (path.empty())
    return Fail(ErrorCode::kInvalidArgument, "cannot create a folder with an empty name");
  std::size_t end = 0;
  while (end != std::string::npos) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) == 0) continue;
    const int reason = errno;
    // On a read-only or unsearchable file system mkdir returns EROFS or EACCES even for a folder
    // that exists, so check before giving up.
    struct stat info {};
    if (stat(part.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
    return Fail(ErrorCode::kIo, Format("cannot create folder {}: {}", part, std::strerror(reason)));
  }
  return {};
}

}  // namespace tilewright
