#include "worker/session.h"

#include <chrono>
#include <utility>

#include "core/text.h"
#include "engine/tune/measuring.h"
#include "worker/process.h"

namespace tilewright::worker {
namespace {

class Session final : public MeasureWorker {
 public:
  Session(WorkerOptions options, std::string program, Terms terms)
      : options_(std::move(options)), program_(std::move(program)), terms_(std::move(terms)) {}

  const std::string& program() const override { return program_; }
  int pid() const override { return process_ != nullptr ? process_->pid() : 0; }
  Counts counts() const override { return counts_; }

  Status Prepare(std::string_view op, const std::string& problem) override {
    op_ = op, problem_ = problem;
    prepared_ = false;
    Readiness ready = MakeReady();
    // Perhaps what was there before was to blame.
    if (!ready.status && ready.ended) ready = MakeReady();
    return std::move(ready.status);
  }
  std::optional<Tuner::Outcome> Check(const WorkerCandidate& candidate) override {
    return Try(
        {"check",
         {std::string(candidate.kernel), std::string(candidate.fingerprint), candidate.spec}},
        options_.check_seconds);
  }
  std::optional<Tuner::Outcome> Time(const WorkerCandidate& candidate, int reps) override {
    return Try({"time",
                {std::string(candidate.kernel), std::string(candidate.fingerprint), candidate.spec,
                 std::to_string(reps)}},
               options_.time_seconds);
  }

  /// Starts a process and compares builds.
  Status Connect() {
    process_.reset();
    opened_ = prepared_ = false;
    Result<std::unique_ptr<WorkerProcess>> started = WorkerProcess::Start(program_);
    if (!started) return Fail(started.error());
    process_ = std::move(*started);
    ++counts_.started;
    const WorkerProcess::Answer answer = process_->Exchange(
        {"hello", {std::string(kProtocol), terms_.build}}, options_.start_seconds);
    if (!answer.message) {
      process_.reset();
      return Fail(ErrorCode::kUnavailable, Format("{}: {}", program_, answer.trouble));
    }
    const Message& hello = *answer.message;
    const bool known = hello.verb == "hello" && hello.words.size() >= 2;
    if (known && hello.words[0] == kProtocol && hello.words[1] == terms_.build) return {};
    process_->Kill();
    process_.reset();
    if (!known) {
      return Fail(ErrorCode::kUnsupported, Format("{} is not a worker: it answered '{}'", program_,
                                                  Printable(hello.verb, 40)));
    }
    return Fail(
        ErrorCode::kUnsupported,
        Format("{} is of another build: {}, protocol {}; this is {}, protocol {}", program_,
               Printable(hello.words[1]), Printable(hello.words[0], 20), terms_.build, kProtocol));
  }

 private:
  struct Readiness {
    Status status;
    bool ended = false;  ///< the process ended meanwhile
  };

  /// A process that has the device open and the operands made.
  Readiness MakeReady() {
    if (process_ != nullptr && !process_->alive()) process_.reset();
    if (process_ == nullptr) {
      if (Status connected = Connect(); !connected) return {connected};
    }
    if (!opened_) {
      Readiness opened = Ask({"open", terms_.settings}, "opened");
      if (!opened.status) return opened;
      opened_ = true;
    }
    if (prepared_) return {};
    Readiness prepared = Ask({"prepare", {op_, problem_}}, "prepared");
    prepared_ = prepared.status.has_value();
    return prepared;
  }

  /// A message that must be answered with `verb`.
  Readiness Ask(const Message& message, std::string_view verb) {
    WorkerProcess::Answer answer = process_->Exchange(message, options_.prepare_seconds);
    if (!answer.message) {
      process_.reset();
      return {Fail(ErrorCode::kUnavailable,
                   Format("the worker, asked to {}: {}", message.verb, answer.trouble)),
              true};
    }
    if (std::optional<Error> error = ErrorOf(*answer.message)) return {Fail(*std::move(error))};
    const bool right = answer.message->verb == verb;
    if (right && verb == "opened" && answer.message->words != std::vector{terms_.device_class}) {
      return {Fail(ErrorCode::kUnavailable,
                   Format("the worker opened another device than {}: {}", terms_.device_class,
                          answer.message->words.empty() ? "" : answer.message->words[0]))};
    }
    if (right) return {};
    process_.reset();
    return {
        Fail(ErrorCode::kUnavailable, Format("the worker, asked to {}, answered '{}'", message.verb,
                                             Printable(answer.message->verb, 40)))};
  }

  /// What came of a trial.
  struct Trial {
    std::optional<Tuner::Outcome> outcome;
    bool unknown = false;  ///< the worker does not have the kernel
    std::string trouble;   ///< how the process, or its device, ended
    bool late = false;
  };
  Trial TryOnce(const Message& message, double seconds) {
    if (Readiness ready = MakeReady(); !ready.status) {
      Trial trial;
      trial.outcome = Failed(Verdict::kError, ready.status.error().message);
      trial.outcome->skipped = true;
      return trial;
    }
    Trial trial;
    WorkerProcess::Answer answer = process_->Exchange(message, seconds);
    trial.trouble = std::move(answer.trouble), trial.late = answer.late;
    if (!answer.message) {
      process_.reset();
      return trial;
    }
    if (answer.message->verb == "unknown") {
      trial.unknown = true;
      return trial;
    }
    Result<Reply> reply = ReplyOf(*answer.message);
    if (!reply || reply->device_lost) {
      trial.trouble = reply ? reply->outcome.evidence : reply.error().message;
      process_.reset();
      return trial;
    }
    // What else it has overwritten nobody knows.
    if (reply->outcome.verdict == Verdict::kGuard) process_.reset();
    trial.outcome = std::move(reply->outcome);
    return trial;
  }

  std::optional<Tuner::Outcome> Try(const Message& message, double seconds) {
    const auto begin = MeasureClock::now();
    Trial first = TryOnce(message, seconds);
    if (first.unknown) return std::nullopt;
    if (first.outcome) return std::move(first.outcome);
    ++counts_.ended;
    Trial second = TryOnce(message, seconds);
    if (second.unknown) return std::nullopt;
    if (second.outcome) {
      if (!second.outcome->skipped) ++counts_.unconfirmed;
      return std::move(second.outcome);
    }
    ++counts_.ended;
    std::string evidence = "in two workers: " + second.trouble;
    if (first.trouble != second.trouble) evidence += "; before that: " + first.trouble;
    Tuner::Outcome outcome =
        Failed(second.late ? Verdict::kHang : Verdict::kCrash, std::move(evidence));
    outcome.cost_us = MicrosSince(begin);
    return outcome;
  }

  WorkerOptions options_;
  std::string program_;
  Terms terms_;
  std::string op_, problem_;
  std::unique_ptr<WorkerProcess> process_;
  bool opened_ = false, prepared_ = false;  // in the process as it is
  Counts counts_;
};

}  // namespace

Result<std::unique_ptr<MeasureWorker>> StartWorker(const WorkerOptions& options, Terms terms) {
  Result<std::string> program = FindWorker(options.program);
  if (!program) return Fail(program.error());
  auto session = std::make_unique<Session>(options, std::move(*program), std::move(terms));
  if (Status connected = session->Connect(); !connected) return Fail(connected.error());
  return std::unique_ptr<MeasureWorker>(std::move(session));
}

}  // namespace tilewright::worker
