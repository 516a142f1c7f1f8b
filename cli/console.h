#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"

namespace tilewright::cli {

// Exit codes of every verb.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

/// Writes to standard output. A failure (a full disk) is remembered and reported by FlushOutput.
void Out(std::string_view text);
/// Flushes; an error, if any write to standard output failed.
Status FlushOutput();

/// Writes to standard error. A failure (closed, a full disk) cannot be reported and changes no
/// exit code.
void Err(std::string_view text);
/// One line on standard error: "tilewright: ...".
void Complain(std::string_view message);
void Warn(std::string_view message);  ///< "tilewright: warning: ..."
void Note(std::string_view message);  ///< as Complain, where nothing went wrong

/// Prints the error and gives the exit code: kUnavailable, which is a question of this machine and
/// the words used, is a usage error; what a signal stopped is ExitInterrupted(); everything else
/// failed.
int ExitFor(const Error& error);
/// A wrong word on the command line: prints it and where to read more, gives kExitUsage.
int Usage(std::string_view message, std::string_view verb);
/// Flushes standard output; `exit_code`, or kExitFailed when the output could not be written.
int Finish(int exit_code);

/// SIGINT and SIGTERM set this; a second one ends the program.
const std::atomic<bool>& Interrupted();
/// 128 + the signal that came, as shells count.
int ExitInterrupted();
/// Signals as above; SIGPIPE ends the program, as it does for every filter, even where the parent
/// ignored it. Standard descriptors that are closed are filled, so that no file the program opens
/// can become its standard output.
void SetUpProcess();

bool StderrIsTerminal();

/// A bar on standard error, drawn at most ten times a second, only where that is a terminal; erases
/// itself when it ends.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `fraction` in [0, 1]; `note` stands behind the bar.
  void Show(double fraction, std::string_view note = {});

 private:
  std::string label_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// Columns padded to their widest cell; the first is left-aligned, the others right unless `left`
/// says otherwise.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<bool> left = {});
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> left_;
};

}  // namespace tilewright::cli
