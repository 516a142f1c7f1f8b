#include "artifact/store/missing_list.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "artifact/dir/dir_files.h"
#include "core/text.h"
#include "tilewright/artifact_store.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

namespace {

/// Waits at most a second for other processes that write the list: after that, or where locks do
/// not work, a duplicate line does less harm than a process that hangs.
void LockBriefly(Filesystem& files, int fd) {
  for (int i = 0; i < 100; ++i) {
    if (files.TryLockRange(fd, 0) != -EAGAIN) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int ReadAll(Filesystem& files, int fd, std::string& text) {
  constexpr std::size_t kPiece = 1 << 16;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    const ssize_t got =
        files.Read(fd, text.data() + before, kPiece, static_cast<std::int64_t>(before));
    text.resize(before + static_cast<std::size_t>(got < 0 ? 0 : got));
    if (got == -EINTR) continue;
    if (got < 0) return static_cast<int>(got);
    if (got == 0) return 0;
  }
}

bool HasLine(std::string_view text, std::string_view line) {
  for (std::size_t at = text.find(line); at != std::string_view::npos;
       at = text.find(line, at + 1)) {
    const std::size_t end = at + line.size();
    if ((at == 0 || text[at - 1] == '\n') && (end == text.size() || text[end] == '\n')) return true;
  }
  return false;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace

Status MissingList::Note(const std::string& spec_name) {
  const std::lock_guard lock(mutex_);
  if (noted_.count(spec_name) != 0) return {};
  if (auto done = Append(spec_name); !done) return done;
  noted_.insert(spec_name);
  return {};
}

Status MissingList::Append(const std::string& spec_name) {
  const auto fail = [&](const char* what, int error) {
    return Fail(ErrorCode::kIo, Format("{}: cannot {}: {}", path_, what, std::strerror(-error)));
  };
  const OpenFile file(
      files_,
      files_.Open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK, 0600));
  if (file.fd() < 0) return fail("open the list of missing kernels", file.fd());
  LockBriefly(files_, file.fd());  // released when the descriptor is closed
  std::string text;
  if (const int error = ReadAll(files_, file.fd(), text); error < 0) return fail("read", error);
  if (HasLine(text, spec_name)) return {};
  // One write in append mode keeps the lines of other processes whole. A process that was killed
  // while writing may have left half a line, which must not be joined with ours.
  const std::string line = (text.empty() || text.back() == '\n' ? "" : "\n") + spec_name + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t put = files_.Write(file.fd(), line.data() + done, line.size() - done);
    if (put == -EINTR) continue;
    if (put <= 0) return fail("write", put < 0 ? static_cast<int>(put) : -EIO);
    done += static_cast<std::size_t>(put);
  }
  return {};
}

Result<std::vector<KernelSpec>> ParseSpecList(std::string_view text, std::string_view file_name) {
  std::vector<KernelSpec> specs;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view whole = text.substr(0, end);
    const std::string_view line = Trim(whole.substr(0, whole.find('#')));  // no name has a #
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.empty()) continue;
    auto spec = ParseSpecName(line);
    if (!spec) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("{}:{}: {}", file_name, number, spec.error().message));
    }
    specs.push_back(*spec);
  }
  return specs;
}

}  // namespace tilewright
