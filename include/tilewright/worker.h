#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tilewright/result.h"
#include "tilewright/tune.h"
#include "tilewright/tuner.h"

namespace tilewright {

// Candidates of a tuning session can be tried in a process of their own, the worker: one that
// crashes, hangs or destroys the context of a GPU then costs that candidate and nothing else. The
// worker is a program, tilewright-worker, which is installed with the library; it is started with
// posix_spawn and spoken to in messages (docs/worker.md). It makes the operands itself, from the
// seed that it is sent, and finds compiled kernels in the same artifact store.

struct WorkerOptions {
  /// The program; "": $TILEWRIGHT_WORKER, else tilewright-worker beside the library or the program,
  /// or where it is installed with them.
  std::string program;
  /// How long the worker may take before it is killed: until it can be spoken to, to open the
  /// device and make the operands of a problem, to check a candidate (the oracle included), to time
  /// one.
  double start_seconds = 60;
  double prepare_seconds = 300;
  double check_seconds = 60;
  double time_seconds = 60;
};

/// A kernel with a launch spec as the worker is told of it.
struct WorkerCandidate {
  std::string_view kernel, fingerprint;
  std::string spec;  ///< SpecText
};

/// A worker process, started when it is needed and started again when it has ended. Destroying this
/// ends the process; if this process dies, so does the worker. One thread at a time, and that of
/// Start or Prepare must live as long as the worker does: Linux ends the worker with it.
///
/// A candidate during whose trial the worker crashes, exits, does not answer in time or loses the
/// device is tried again in a fresh one. Only if that fails as well it is Verdict::kCrash or kHang,
/// with what was observed; a failure that does not repeat is not the candidate's.
class MeasureWorker {
 public:
  virtual ~MeasureWorker() = default;

  virtual const std::string& program() const = 0;
  /// Of the process as it is now; 0 while there is none.
  virtual int pid() const = 0;
  struct Counts {
    int started = 0;      ///< processes
    int ended = 0;        ///< that ended, or were ended, in the trial of a candidate
    int unconfirmed = 0;  ///< candidates whose failure a fresh worker did not repeat
  };
  virtual Counts counts() const = 0;

  /// Makes the operands of a problem (Op::kName and KeyOf). Errors: those of Measurer::Prepare in
  /// the worker; kUnavailable if it cannot be started or ended twice meanwhile.
  virtual Status Prepare(std::string_view op, const std::string& problem) = 0;
  /// Of the problem that was prepared last; nullopt if the worker does not have this kernel, or has
  /// another of this name.
  virtual std::optional<Tuner::Outcome> Check(const WorkerCandidate& candidate) = 0;
  virtual std::optional<Tuner::Outcome> Time(const WorkerCandidate& candidate, int reps) = 0;
};

/// Measures in a worker, which must outlive it. Kernels that only this process knows, such as those
/// that its user has added to a registry, are measured in this process, by what `in_process` makes
/// when the first of them is met.
template <class Op>
class WorkerMeasurer final : public Measurer<Op> {
 public:
  using InProcess = std::function<std::unique_ptr<Measurer<Op>>()>;
  WorkerMeasurer(MeasureWorker& worker, InProcess in_process)
      : worker_(worker), in_process_(std::move(in_process)) {}

  Status Prepare(const typename Op::Desc& problem) override {
    desc_ = problem;
    prepared_here_ = false;
    return worker_.Prepare(Op::kName, KeyOf(problem));
  }
  Tuner::Outcome Check(const typename Op::Spec& spec) override {
    if (auto outcome = worker_.Check(CandidateOf(spec))) return *std::move(outcome);
    return Here([&](Measurer<Op>& here) { return here.Check(spec); });
  }
  Tuner::Outcome Time(const typename Op::Spec& spec, int reps) override {
    if (auto outcome = worker_.Time(CandidateOf(spec), reps)) return *std::move(outcome);
    return Here([&](Measurer<Op>& here) { return here.Time(spec, reps); });
  }

 private:
  static WorkerCandidate CandidateOf(const typename Op::Spec& spec) {
    return {spec.kernel->name(), spec.kernel->info().fingerprint, SpecText(spec)};
  }
  template <class Measure>
  Tuner::Outcome Here(const Measure& measure) {
    if (here_ == nullptr) here_ = in_process_();
    if (!prepared_here_) {
      if (Status prepared = here_->Prepare(desc_); !prepared) {
        Tuner::Outcome outcome;
        outcome.verdict = Verdict::kError;
        outcome.evidence = prepared.error().message;
        outcome.skipped = true;
        return outcome;
      }
      prepared_here_ = true;
    }
    return measure(*here_);
  }

  MeasureWorker& worker_;
  InProcess in_process_;
  std::unique_ptr<Measurer<Op>> here_;
  typename Op::Desc desc_{};
  bool prepared_here_ = false;
};

}  // namespace tilewright
