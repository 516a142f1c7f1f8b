#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "worker/message.h"

namespace tilewright::worker {

/// A worker process and the connection to it. Destroying this ends the process and waits for that.
/// One thread at a time. In the child of a fork only the connection is closed.
class WorkerProcess {
 public:
  /// Starts `program` with posix_spawn: its standard input and output are the connection, its
  /// standard error is this process's, and it is in a process group of its own, so that Ctrl-C is
  /// this process's to handle. kUnavailable names the program and the reason.
  static Result<std::unique_ptr<WorkerProcess>> Start(const std::string& program);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Ends it without waiting for it to do so by itself.
  void Kill() { static_cast<void>(End(true)); }
  /// False once it has ended or closed its side.
  bool alive() const;

  /// What came of an exchange.
  struct Answer {
    std::optional<Message> message;  ///< if there is none, the process has been ended
    std::string trouble;             ///< "its process died: signal 11 (Segmentation fault)"
    bool late = false;
  };
  /// Sends a message and waits for the next one. Whatever is not a message in time ends the
  /// process.
  Answer Exchange(const Message& message, double seconds);

 private:
  WorkerProcess(pid_t pid, int connection);
  Answer Ended(std::string trouble);
  /// Waits for the end for a moment, then kills; how it ended. Only the first call does anything.
  std::string End(bool kill_at_once);

  pid_t pid_;
  int connection_;
  pid_t owner_;
  bool ended_ = false;
  MessageReader reader_;
};

/// The program of the worker: `program`, $TILEWRIGHT_WORKER, or beside the library and the program.
/// kUnavailable names the places that were tried.
Result<std::string> FindWorker(const std::string& program);

}  // namespace tilewright::worker
