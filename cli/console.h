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
/// Flushes; returns an error if any write to standard output failed.
Status FlushOutput();

/// Writes to standard error. A failure (closed, a full disk) cannot be reported and does not change
/// the exit code.
void Err(std::string_view text);
/// One line on standard error: "tilewright: ...".
void Complain(std::string_view message);
void Warn(std::string_view message);  ///< "tilewright: warning: ..."
void Note(std::string_view message);  ///< as Complain, but for information only

/// Prints the error and returns the exit code: kExitUsage for kUnavailable, which depends on the
/// machine and the arguments; ExitInterrupted() if a signal stopped the program; else kExitFailed.
int ExitFor(const Error& error);
/// Once a GPU was opened that it is gone is a failure for ExitFor, no fault of the arguments.
void SetGpuWorks();
/// Reports a usage error and where to read more; returns kExitUsage.
int Usage(std::string_view message, std::string_view verb);
/// Flushes standard output; returns `exit_code`, or kExitFailed if the output could not be written.
int Finish(int exit_code);

/// SIGINT and SIGTERM set this; a second one ends the program.
const std::atomic<bool>& Interrupted();
/// 128 + the signal's number, as in shells.
int ExitInterrupted();
/// Sets up signals as above; SIGPIPE ends the program, as for any filter, even if the parent
/// ignored it. Opens standard descriptors that are closed, so that no file opened later can become
/// standard output.
void SetUpProcess();

bool StderrIsTerminal();

/// A progress bar on standard error, if that is a terminal, drawn at most ten times a second;
/// erases itself at the end.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `fraction` in [0, 1]; `note` is shown after the bar.
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
