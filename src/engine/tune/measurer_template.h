#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "engine/op_traits.h"
#include "engine/tune/bound_launches.h"
#include "engine/tune/burst.h"
#include "engine/tune/measuring.h"
#include "engine/tune/trial.h"
#include "engine/tune/trial_memory.h"
#include "engine/tune/trial_oracle.h"
#include "tilewright/tune.h"

namespace tilewright {

/// Measures any operation whose room declares its trial (trial.h).
template <class Op>
class OpMeasurer final : public Measurer<Op> {
 public:
  using Desc = typename Op::Desc;
  using Spec = typename Op::Spec;
  using Args = typename Op::Args;

  OpMeasurer(Device& device, const MeasurerOptions& options)
      : device_(device),
        stream_(device.default_stream()),
        options_(options.trial),
        rotation_(options, device),
        memory_(device, stream_),
        workspace_(device),
        burst_(device, stream_),
        speed_(device.spec(), stream_.exec()) {}

  Status Prepare(const Desc& problem) override {
    ready_ = false;
    bound_.Clear();
    desc_ = problem;
    Result<Trial<Op>> trial = MakeTrial(problem, options_);
    if (!trial) return Fail(trial.error());
    trial_ = std::move(*trial);
    oracle_ready_ = false;
    if (Status s = memory_.Place(trial_.tensors, rotation_); !s) return s;
    views_.assign(memory_.guarded().begin(), memory_.guarded().end());
    ready_ = true;
    return {};
  }

  Tuner::Outcome Check(const Spec& spec) override {
    // Compiling and loading takes the host's time, not the device's.
    if (ready_) static_cast<void>(BindSpec(spec));
    return WithCost([&] { return CheckAll(spec); });
  }
  Tuner::Outcome Time(const Spec& spec, int reps) override {
    return WithCost([&] { return TimeAll(spec, reps); });
  }

 private:
  /// Inputs larger than this take too long to compare after every launch.
  static constexpr std::size_t kComparedInput = std::size_t{16} << 20;

  using Contents = std::vector<std::vector<std::byte>>;  // of the outputs

  using Bound = typename BoundLaunches<Op>::Bound;

  Result<Bound> BindSpec(const Spec& spec) {
    if (Status s =
            workspace_.Reserve(spec.kernel->WorkspaceFor(desc_, spec, device_.spec()), stream_);
        !s)
      return Fail(s.error());
    return bound_.Bind(desc_, spec, device_);
  }

  Status Launch(const Args& args, const Spec& spec, const BoundLaunch<Op>* bound) {
    return BoundLaunches<Op>::Launch(args, spec, bound, workspace_.get(), stream_);
  }

  /// The call over `views`, completed as a dispatch completes it.
  Result<Args> ArgsOver(std::span<const TensorView> views) {
    Args args = trial_.args(desc_, views);
    if (Status s = prepared_.Prepare(args, device_, stream_, trial_.positions); !s)
      return Fail(s.error());
    return args;
  }

  Tuner::Outcome CheckAll(const Spec& spec) {
    if (!ready_) return Failed(Verdict::kError, "no problem was prepared");
    if (!oracle_ready_) {
      if (Status s = oracle_.Compute(trial_, desc_); !s) return Unmeasurable(s.error());
      oracle_ready_ = true;
    }
    const Result<Bound> bound = BindSpec(spec);
    if (!bound) return Failed(bound.error());
    Contents first;
    if (Tuner::Outcome bad = CheckOnce(spec, bound->get(), false, first);
        bad.verdict != Verdict::kOk || bad.skipped) {
      return bad;
    }
    Contents second;
    if (trial_.in_place) {
      if (Tuner::Outcome bad = CheckOnce(spec, bound->get(), true, second);
          bad.verdict != Verdict::kOk || bad.skipped) {
        bad.evidence += " (in place)";
        return bad;
      }
    }
    if (!spec.kernel->info().deterministic) return {};
    if (Tuner::Outcome bad = CheckOnce(spec, bound->get(), false, second);
        bad.verdict != Verdict::kOk || bad.skipped) {
      return bad;
    }
    if (first == second) return {};
    return Failed(Verdict::kWrong,
                  "two runs differ, but the kernel declares that it is deterministic");
  }

  /// Launches into poisoned memory and checks everything that may and may not be written.
  Tuner::Outcome CheckOnce(const Spec& spec, const BoundLaunch<Op>* bound, bool in_place,
                           Contents& got) {
    Status s = workspace_.Poison(stream_);
    for (const std::size_t output : trial_.outputs) {
      if (s) s = memory_.Write(output, ContentOf(output, in_place));
    }
    if (!s) return Unmeasurable(s.error());
    std::vector<TensorView> views(memory_.guarded().begin(), memory_.guarded().end());
    if (in_place) views[trial_.in_place->first] = views[trial_.in_place->second];
    const Result<Args> args = ArgsOver(views);
    if (!args) return Unmeasurable(args.error());
    try {
      s = Launch(*args, spec, bound);
    } catch (const std::exception& thrown) {
      return Failed(Verdict::kCrash, Format("Launch threw: {}", thrown.what()));
    } catch (...) {
      return Failed(Verdict::kCrash, "Launch threw");
    }
    if (s) s = device_.Synchronize(stream_);
    if (!s) return Failed(s.error());
    return Judge(trial_.ToleranceOf(spec.kernel->info()), in_place, got);
  }

  /// What an output holds before a launch.
  const std::vector<std::byte>& ContentOf(std::size_t output, bool in_place) const {
    const bool shared = in_place && trial_.in_place->second == output;
    return trial_.tensors[shared ? trial_.in_place->first : output].content;
  }
  bool IsOutput(std::size_t tensor) const {
    return std::find(trial_.outputs.begin(), trial_.outputs.end(), tensor) != trial_.outputs.end();
  }

  Tuner::Outcome Judge(const Tolerance& tolerance, bool in_place, Contents& got) {
    const Result<std::string> damaged = memory_.DamagedGuard(trial_.tensors);
    if (!damaged) return Unmeasurable(damaged.error());
    if (!damaged->empty()) return Outside("wrote outside " + *damaged);
    for (std::size_t i = 0; i < trial_.tensors.size(); ++i) {
      const TrialTensor& tensor = trial_.tensors[i];
      if (IsOutput(i) || tensor.content.size() > kComparedInput) continue;
      const Result<std::vector<std::byte>> input = memory_.Read(i);
      if (!input) return Unmeasurable(input.error());
      if (*input != tensor.content)
        return Outside(Format("wrote to {}, which it only reads", tensor.name));
    }
    got.clear();
    for (std::size_t i = 0; i < trial_.outputs.size(); ++i) {
      Result<std::vector<std::byte>> output = memory_.Read(trial_.outputs[i]);
      if (!output) return Unmeasurable(output.error());
      std::vector<std::byte> before = ContentOf(trial_.outputs[i], in_place);
      before.resize(output->size(), std::byte{0xff});
      const std::string wrong = oracle_.Difference(trial_, tolerance, i, *output, before);
      if (!wrong.empty())
        return Failed(Verdict::kWrong, Format("{} (operands of seed {})", wrong, options_.seed));
      got.push_back(std::move(*output));
    }
    return {};
  }

  /// Restores for the next candidate what was overwritten but must not be.
  Tuner::Outcome Outside(std::string evidence) {
    for (std::size_t i = 0; i < trial_.tensors.size(); ++i) {
      if (Status s = memory_.Write(i, trial_.tensors[i].content); !s)
        return Unmeasurable(s.error());
    }
    return Failed(Verdict::kGuard, std::move(evidence));
  }

  /// Trouble that is not the candidate's.
  static Tuner::Outcome Unmeasurable(const Error& error) {
    Tuner::Outcome outcome = Failed(Verdict::kError, error.message);
    outcome.skipped = true;
    return outcome;
  }

  Tuner::Outcome TimeAll(const Spec& spec, int reps) {
    if (!ready_) return Failed(Verdict::kError, "no problem was prepared");
    const Result<Bound> bound = BindSpec(spec);
    if (!bound) return Failed(bound.error());
    Result<Args> args = ArgsOver(views_);
    if (!args) return Unmeasurable(args.error());
    const auto finish = [this] { return device_.Synchronize(stream_); };
    const auto launch = [&]() -> Status {
      if (memory_.copies() > 1) {
        next_copy_ = next_copy_ + 1 < memory_.copies() ? next_copy_ + 1 : 0;
        memory_.UseCopy(next_copy_, views_);
        *args = trial_.args(desc_, views_);
        if constexpr (requires { typename Op::Prepared; }) {
          if (Status s = prepared_.Prepare(*args, device_, stream_, trial_.positions); !s) return s;
        }
      }
      return Launch(*args, spec, bound->get());
    };
    try {
      if (burst_.usable()) {
        return burst_.Time({.reps = reps,
                            .rotating_bytes = memory_.rotating_bytes(),
                            .cold_bytes = rotation_.BytesWanted()},
                           launch);
      }
      return TimeLaunches(busy_, speed_, reps, launch, finish);
    } catch (const std::exception& thrown) {
      return Failed(Verdict::kCrash, Format("Launch threw: {}", thrown.what()));
    } catch (...) {
      return Failed(Verdict::kCrash, "Launch threw");
    }
  }

  Device& device_;
  Stream stream_;
  TrialOptions options_;
  RotatingCopies rotation_;
  Desc desc_;
  Trial<Op> trial_;
  bool ready_ = false, oracle_ready_ = false;
  TrialMemory memory_;
  TrialWorkspace workspace_;
  BurstTimer burst_;
  TrialOracle<Op> oracle_;
  PreparedOf<Op> prepared_;
  BoundLaunches<Op> bound_;
  std::vector<TensorView> views_;  // of the call that is timed
  int next_copy_ = 0;
  BusyWatch busy_;
  SpeedWatch speed_;
};

template <class Op>
std::unique_ptr<Measurer<Op>> MakeMeasurer(Device& device, const MeasurerOptions& options) {
  return std::make_unique<OpMeasurer<Op>>(device, options);
}

template <class Op>
LeastWork LeastWorkOf(const typename Op::Desc& problem,
                      [[maybe_unused]] const TrialOptions& options) {
  if constexpr (requires { WorkOf(problem, options); }) {
    return WorkOf(problem, options);
  } else {
    return WorkOf(problem);
  }
}

/// In one .cc file of the operation's room.
#define TILEWRIGHT_INSTANTIATE_MEASURER(OP)                                                 \
  template std::unique_ptr<Measurer<OP>> MakeMeasurer<OP>(Device&, const MeasurerOptions&); \
  template LeastWork LeastWorkOf<OP>(const OP::Desc&, const TrialOptions&)

}  // namespace tilewright
