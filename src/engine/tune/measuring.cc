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

std::int64_t WarmWeightBytes(const DeviceSpec& device) {
  return std::min(2 * device.l2_bytes * device.cores, device.llc_bytes / 2);
}

MeasurePolicy PolicyFor(std::int64_t weight_bytes, const DeviceSpec& device) {
  const bool stays = weight_bytes > 0 && weight_bytes <= device.llc_bytes / 2;
  return stays ? MeasurePolicy::kWarm : MeasurePolicy::kCold;
}

namespace {

std::int64_t WarmBytesOf(const MeasurerOptions& options, const Executor& executor) {
  DeviceSpec device = DetectCpuCappedAt(Isa::kScalar);
  device.cores = executor.workers();
  if (options.llc_bytes > 0) device.llc_bytes = options.llc_bytes;
  return WarmWeightBytes(device);
}

}  // namespace

RotatingCopies::RotatingCopies(const MeasurerOptions& options, Executor& executor)
    : policy_(options.policy),
      llc_bytes_(options.llc_bytes),
      max_bytes_(options.max_bytes > 0 ? options.max_bytes
                                       : static_cast<std::int64_t>(AvailableMemoryBytes() / 4)),
      warm_bytes_(WarmBytesOf(options, executor)),
      executor_(executor) {}

RotatingCopies::RotatingCopies(const MeasurerOptions& options, Device& device)
    : RotatingCopies(options, device.default_stream().exec()) {
  if (device.spec().kind != DeviceKind::kCuda) return;
  constexpr std::int64_t kOfGpu = std::int64_t{4} << 30;
  if (llc_bytes_ == 0) llc_bytes_ = device.spec().llc_bytes;
  if (options.max_bytes == 0) max_bytes_ = kOfGpu;
  warm_bytes_ = 0;
}

int RotatingCopies::CountFor(std::size_t stride) {
  if (stride == 0) return 1;
  const auto bytes = static_cast<std::int64_t>(stride);
  const std::int64_t more = policy_ == MeasurePolicy::kWarm ? 0 : 1;  // must not fit at all
  const std::int64_t wanted = (BytesWanted() + bytes - 1) / bytes + more;
  return static_cast<int>(
      std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, max_bytes_ / bytes)));
}

std::int64_t RotatingCopies::ColdBytes() {
  if (llc_bytes_ > 0) return ColdWeightBytes(llc_bytes_, 0);
  // Once in a process: it takes a third of a second, and every operation has a measurer.
  static const std::int64_t bytes =
      ColdWeightBytes(MeasureLlcBytes(executor_), DetectCpuCappedAt(Isa::kScalar).llc_bytes);
  return bytes;
}

}  // namespace tilewright
