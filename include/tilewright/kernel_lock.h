#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tilewright/result.h"
#include "tilewright/stages.h"

namespace tilewright {

/// The kernels and launch parameters that somebody decided on, for each device class, to be kept
/// under version control as `tilewright.lock`: a later build or other records that choose otherwise
/// are then seen (CheckLock), or overruled, by giving the pins of a class to Context::MakeDispatch: of
/// exactly these problems, hence not of products whose weights are packed already where the lock has
/// their layout open. A value; the file is described in docs/kernel_lock.md.
struct KernelLock {
  std::map<std::string, Pins, std::less<>> by_device;  ///< by DeviceSpec::ClassId

  /// Strict, unlike a cache: a line that cannot be understood is an error, since what it pinned
  /// would otherwise be unguarded. Errors name `name`, the line and what to do: kCorrupt; kUnsupported
  /// for a later version of the format.
  static Result<KernelLock> Parse(std::string_view text, const std::string& name);
  /// Parse of a file. Also kNotFound and kIo.
  static Result<KernelLock> Read(const std::string& path);

  /// The same pins give the same bytes: one line each, sorted by device, operation and problem.
  std::string Text() const;
  /// WriteWholeFile of it.
  Status Write(const std::string& path) const;

  /// The pins of a device class; nullptr if there are none.
  const Pins* Find(std::string_view device) const {
    const auto found = by_device.find(device);
    return found == by_device.end() || found->second.by_problem.empty() ? nullptr : &found->second;
  }
};

enum class LockVerdict : std::uint8_t {
  kAgrees,
  kOtherKernel,
  kOtherLaunch,  ///< the locked kernel with other launch parameters
  kMissing,      ///< the lock does not have the problem
};
std::string_view LockVerdictName(LockVerdict verdict);  ///< "agrees", "other kernel", ...

/// What a lock says about one problem.
struct LockAnswer {
  LockVerdict verdict = LockVerdict::kMissing;
  Pins::Pin locked;  ///< empty if missing
  /// Why the locked launch cannot run here: "not in this build", or the kernel's reason. "" if it
  /// can, and only was not chosen.
  std::string hindrance;
};

/// Compares a choice with the pins of this device class. `candidates` are those that `choice` was
/// made from; `locked` may be nullptr. Pure.
template <class Op>
LockAnswer CheckLock(const Pins* locked, const Candidates<Op>& candidates,
                     const Choice<Op>& choice) {
  LockAnswer answer;
  if (locked == nullptr) return answer;
  const auto found = locked->by_problem.find(Pins::Key(Op::kName, KeyOf(candidates.problem())));
  if (found == locked->by_problem.end()) return answer;
  answer.locked = found->second;
  const bool same_kernel = answer.locked.kernel == choice.kernel().name();
  if (same_kernel && answer.locked.spec == SpecText(choice.spec())) {
    answer.verdict = LockVerdict::kAgrees;
    return answer;
  }
  answer.verdict = same_kernel ? LockVerdict::kOtherLaunch : LockVerdict::kOtherKernel;
  const Candidate<Op>* candidate = candidates.Find(answer.locked.kernel);
  if (candidate == nullptr) {
    answer.hindrance = "the locked kernel is not in this build";
  } else if (!candidate->feasible()) {
    answer.hindrance = "the locked kernel cannot run it here: " + candidate->rejection->ToString();
  } else {
    bool offered = false;
    for (const auto& spec : candidate->specs)
      offered = offered || SpecText(spec) == answer.locked.spec;
    if (!offered) answer.hindrance = "the locked kernel does not offer that launch here";
  }
  return answer;
}

}  // namespace tilewright
