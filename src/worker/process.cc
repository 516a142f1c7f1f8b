#include "worker/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/text.h"

namespace tilewright::worker {
namespace {

using Clock = std::chrono::steady_clock;

/// strerror is not for several threads; this is.
std::string ReasonOf(int error) { return std::generic_category().message(error); }

/// The attributes of a process that is to begin afresh: no signal blocked or ignored.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

/// The connection as standard input and output, and nothing else of the parent's but its standard
/// error: another file that is open here would stay open there.
class SpawnFiles {
 public:
  explicit SpawnFiles(int connection) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, connection, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, connection, STDOUT_FILENO);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
#endif
  }
  ~SpawnFiles() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnFiles(const SpawnFiles&) = delete;
  SpawnFiles& operator=(const SpawnFiles&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

std::string DeathOf(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* name = sigdescr_np(signal);
    return Format("its process died: signal {} ({})", signal, name != nullptr ? name : "unknown");
  }
  return Format("its process ended with exit code {}", WEXITSTATUS(status));
}

/// Waits up to `limit` for the end of a child; whether it has ended. `status` is -1 where somebody
/// else has collected it.
bool Collect(pid_t pid, std::chrono::milliseconds limit, int& status) {
  const Clock::time_point until = Clock::now() + limit;
  for (std::chrono::microseconds pause{50};;
       pause = std::min(2 * pause, std::chrono::microseconds(5000))) {
    const pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid) return true;
    if (got < 0 && errno != EINTR) {
      status = -1;
      return true;
    }
    if (Clock::now() >= until) return false;
    usleep(static_cast<useconds_t>(pause.count()));
  }
}

}  // namespace

WorkerProcess::WorkerProcess(pid_t pid, int connection)
    : pid_(pid), connection_(connection), owner_(getpid()) {}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const std::string& program) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Fail(ErrorCode::kUnavailable,
                Format("{} cannot be started: {}", Printable(program), ReasonOf(errno)));
  }
  std::string name = program;
  char* const argv[] = {name.data(), nullptr};
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, program.c_str(), SpawnFiles(ends[1]).get(),
                                 SpawnAttributes().get(), argv, environ);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return Fail(ErrorCode::kUnavailable,
                Format("{} cannot be started: {}", Printable(program), ReasonOf(failed)));
  }
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, ends[0]));
}

WorkerProcess::~WorkerProcess() {
  if (getpid() != owner_) {
    close(connection_);
    return;
  }
  static_cast<void>(End(false));
}

bool WorkerProcess::alive() const {
  if (ended_) return false;
  pollfd state{connection_, POLLRDHUP, 0};
  return poll(&state, 1, 0) == 0;
}

std::string WorkerProcess::End(bool kill_at_once) {
  if (ended_) return "its process has ended";
  ended_ = true;
  // An idle worker ends when the connection does.
  close(connection_);
  constexpr std::chrono::milliseconds kGrace{3000}, kAfterKill{30000};
  int status = 0;
  if (!kill_at_once && Collect(pid_, kGrace, status))
    return status == -1 ? "its process ended" : DeathOf(status);
  kill(-pid_, SIGKILL);  // its group: where it is a script, what that has started too
  if (!Collect(pid_, kAfterKill, status)) return "its process cannot be ended";
  return "its process was killed";
}

WorkerProcess::Answer WorkerProcess::Ended(std::string trouble) {
  Answer answer;
  answer.trouble = std::move(trouble);
  return answer;
}

WorkerProcess::Answer WorkerProcess::Exchange(const Message& message, double seconds) {
  if (ended_) return Ended("its process has ended");
  const Result<std::string> bytes = Encode(message);
  if (!bytes) return Ended(bytes.error().message + "; " + End(true));
  for (std::size_t sent = 0; sent < bytes->size();) {
    const ssize_t got = send(connection_, bytes->data() + sent, bytes->size() - sent, MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Ended(End(false));
    sent += static_cast<std::size_t>(got);
  }
  const Clock::time_point until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                     std::chrono::duration<double>(seconds));
  for (;;) {
    Result<std::optional<Message>> next = reader_.Next();
    if (!next) {
      End(true);
      return Ended("its process sent what is no message: " + next.error().message);
    }
    if (*next) {
      Answer answer;
      answer.message = std::move(**next);
      return answer;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) {
      End(true);
      Answer answer =
          Ended(Format("its process did not answer within {} s and was killed", seconds));
      answer.late = true;
      return answer;
    }
    pollfd wait{connection_, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1000))) <= 0) continue;
    char piece[4096];
    const ssize_t got = recv(connection_, piece, sizeof piece, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Ended(End(false));
    reader_.Add({piece, static_cast<std::size_t>(got)});
  }
}

}  // namespace tilewright::worker
