#include "engine/tune/measuring.h"

#include <algorithm>

#include "core/memory.h"
#include "tilewright/device_spec.h"

namespace tilewright {

Tuner::Outcome Failed(Verdict verdict, std::string evidence) {
  Tuner::Outcome outcome;
  outcome.verdict = verdict;
  outcome.evidence = std::move(evidence);
  return outcome;
}

Tuner::Outcome Failed(const Error& error) {
  Tuner::Outcome outcome = Failed(Verdict::kError, error.message);
  switch (error.code) {
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kUnavailable:
    case ErrorCode::kNotFound:
    case ErrorCode::kCancelled:
      outcome.skipped = true;
      break;
    default:
      break;
  }
  return outcome;
}

std::int64_t ColdWeightBytes(std::int64_t measured_llc, std::int64_t reported_llc) {
  constexpr std::int64_t kEnough = std::int64_t{512} << 20;
  return std::max(3 * measured_llc, std::min(6 * reported_llc, kEnough));
}

ColdCopies::ColdCopies(const MeasurerOptions& options, Executor& executor)
    : policy_(options.policy),
      llc_bytes_(options.llc_bytes),
      max_bytes_(options.max_bytes > 0 ? options.max_bytes
                                       : static_cast<std::int64_t>(AvailableMemoryBytes() / 4)),
      executor_(executor) {}

ColdCopies::ColdCopies(const MeasurerOptions& options, Device& device)
    : ColdCopies(options, device.default_stream().exec()) {
  if (device.spec().kind != DeviceKind::kCuda) return;
  constexpr std::int64_t kOfGpu = std::int64_t{4} << 30;
  if (llc_bytes_ == 0) llc_bytes_ = device.spec().llc_bytes;
  if (options.max_bytes == 0) max_bytes_ = kOfGpu;
}

int ColdCopies::CountFor(std::size_t stride) {
  if (stride == 0) return 1;
  const auto bytes = static_cast<std::int64_t>(stride);
  const std::int64_t wanted =
      policy_ == MeasurePolicy::kWarm ? 1 : (ColdBytes() + bytes - 1) / bytes + 1;
  return static_cast<int>(
      std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, max_bytes_ / bytes)));
}

std::int64_t ColdCopies::ColdBytes() {
  if (llc_bytes_ > 0) return ColdWeightBytes(llc_bytes_, 0);
  // Once in a process: it takes a third of a second, and every operation has a measurer.
  static const std::int64_t bytes =
      ColdWeightBytes(MeasureLlcBytes(executor_), DetectCpuCappedAt(Isa::kScalar).llc_bytes);
  return bytes;
}

}  // namespace tilewright
