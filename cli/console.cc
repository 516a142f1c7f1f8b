#include "console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace tilewright::cli {
namespace {

std::atomic<bool> g_interrupted{false};
std::atomic<int> g_signal{0};
int g_output_errno = 0;

void OnSignal(int signal) {
  if (g_interrupted.exchange(true)) _exit(128 + signal);
  g_signal.store(signal);
}

/// Approximate display width: code points.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

/// A progress bar is erased before anything else is written to standard error.
bool g_bar_drawn = false;
void EndLine() {
  if (g_bar_drawn) Err("\r\x1b[K");
  g_bar_drawn = false;
}

}  // namespace

void Out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && g_output_errno == 0)
    g_output_errno = errno;
}

Status FlushOutput() {
  if (std::fflush(stdout) != 0 && g_output_errno == 0) g_output_errno = errno;
  if (g_output_errno == 0) return {};
  return Fail(ErrorCode::kIo, fmt::format("standard output: {}", std::strerror(g_output_errno)));
}

// Not fmt::print, which throws if the text cannot be written.
void Err(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

void Complain(std::string_view message) {
  EndLine();
  Err(fmt::format("tilewright: {}\n", message));
}
void Warn(std::string_view message) { Complain(fmt::format("warning: {}", message)); }
void Note(std::string_view message) { Complain(message); }

namespace {

/// A problem that no kernel of a GPU takes has hundreds of reasons: the first ones, and how many
/// there are.
std::string Shortened(const std::string& message) {
  constexpr std::size_t kLines = 20;
  std::size_t end = 0, lines = 0;
  for (; lines < kLines && end != std::string::npos; ++lines) end = message.find('\n', end + 1);
  if (end == std::string::npos) return message;
  const auto more =
      std::count(message.begin() + static_cast<std::ptrdiff_t>(end), message.end(), '\n');
  return message.substr(0, end) + fmt::format("\n  ... and {} more", more);
}

bool g_gpu_works = false;

}  // namespace

void SetGpuWorks() { g_gpu_works = true; }

int ExitFor(const Error& error) {
  if (error.code == ErrorCode::kCancelled && Interrupted()) {
    Complain("interrupted");
    return ExitInterrupted();
  }
  Complain(Shortened(error.message));
  // A GPU that is lost on the way was there when it was asked for.
  return error.code == ErrorCode::kUnavailable && !g_gpu_works ? kExitUsage : kExitFailed;
}

int Usage(std::string_view message, std::string_view verb) {
  Complain(fmt::format("{} (see 'tilewright {} --help')", message, verb));
  return kExitUsage;
}

int Finish(int exit_code) {
  if (Status status = FlushOutput(); !status) {
    Complain(status.error().message);
    return exit_code == kExitOk ? kExitFailed : exit_code;
  }
  return exit_code;
}

const std::atomic<bool>& Interrupted() { return g_interrupted; }

int ExitInterrupted() { return 128 + g_signal.load(); }

void SetUpProcess() {
  for (int fd = 0; fd <= 2; ++fd) {
    // Opened in the wrong direction on purpose, so that reading or writing still fails.
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_IGN);
}

bool StderrIsTerminal() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal;
}

Progress::Progress(std::string label) : label_(std::move(label)) {}

Progress::~Progress() {
  if (shown_) EndLine();
}

void Progress::Show(double fraction, std::string_view note) {
  if (!StderrIsTerminal()) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && fraction < 1 && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  constexpr int kCells = 28;
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kCells);
  std::string line =
      fmt::format("{} [{}{}] {:3.0f} %", label_, std::string(static_cast<std::size_t>(full), '='),
                  std::string(static_cast<std::size_t>(kCells - full), ' '),
                  std::clamp(fraction, 0.0, 1.0) * 100);
  if (!note.empty()) line += fmt::format("  {}", note);
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && line.size() >= size.ws_col)
    line.resize(size.ws_col - 1u);
  Err("\r\x1b[K" + line);
  std::fflush(stderr);
  g_bar_drawn = true;
}

Table::Table(std::vector<std::string> header, std::vector<bool> left) : left_(std::move(left)) {
  rows_.push_back(std::move(header));
}

std::string Table::Text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      const bool left = i < left_.size() ? left_[i] : i == 0;
      if (i > 0) line += "  ";
      line += left ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tilewright::cli
