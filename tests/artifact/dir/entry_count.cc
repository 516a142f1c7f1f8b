#include "entry_count.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/text.h"
#include "dir_fixture.h"

namespace tilewright::test {
namespace {

constexpr std::uint32_t kCame = IN_CREATE | IN_MOVED_TO, kWent = IN_DELETE | IN_MOVED_FROM;

bool IsEntry(std::string_view name) { return name.ends_with(".twk"); }

}  // namespace

EntryCount::EntryCount(const std::string& root) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (fd_ < 0) trouble_ = Format("inotify_init1: {}", std::strerror(errno));
  for (int shard = 0; shard < 256; ++shard) {
    const std::string folder = Format("{}/v1/entries/{:02x}", root, shard);
    (void)mkdir(folder.c_str(), 0700);
    if (trouble_.empty() && inotify_add_watch(fd_, folder.c_str(), kCame | kWent) < 0) {
      trouble_ = Format("inotify_add_watch {}: {}", folder, std::strerror(errno));
    }
    for (const std::string& name : NamesIn(folder)) now_ += IsEntry(name) ? 1 : 0;
  }
  most_ = now_;
}

EntryCount::~EntryCount() {
  if (fd_ >= 0) close(fd_);
}

void EntryCount::Update() {
  alignas(inotify_event) std::array<char, 65536> buffer;
  ssize_t bytes = 0;
  while (fd_ >= 0 && (bytes = read(fd_, buffer.data(), buffer.size())) > 0) {
    for (const char* at = buffer.data(); at < buffer.data() + bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(at);
      at += sizeof *event + event->len;
      if ((event->mask & IN_Q_OVERFLOW) != 0) trouble_ = "inotify: its list overflowed";
      if (event->len == 0 || !IsEntry(event->name)) continue;
      if ((event->mask & kCame) != 0) ++now_;
      if ((event->mask & kWent) != 0) --now_;
      most_ = std::max(most_, now_);
    }
  }
}

}  // namespace tilewright::test
