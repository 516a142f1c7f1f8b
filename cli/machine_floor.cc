#include "machine_floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tilewright/read_floor.h"
#include "tilewright/tune.h"

namespace tilewright::cli {
namespace {

struct Named {
  Precision precision;
  const char *name, *key, *unit;
};
constexpr Named kNamed[] = {{Precision::kI8, "int8", "i8", "Gop/s"},
                            {Precision::kBF16, "bf16", "bf16", "GFLOP/s"},
                            {Precision::kF32, "f32", "f32", "GFLOP/s"}};

}  // namespace

const PeakRate& PeakOf(const Peaks& peaks, Precision precision) {
  return peaks[static_cast<std::size_t>(precision == Precision::kW8A8 ? Precision::kI8
                                                                      : precision)];
}

Peaks MeasurePeaks(const DeviceSpec& device, Executor& executor) {
  Peaks peaks;
  for (const Named& one : kNamed)
    peaks[static_cast<std::size_t>(one.precision)] = BestPeak(device, executor, one.precision);
  return peaks;
}

std::string PeaksText(const Peaks& peaks) {
  std::string text;
  for (const Named& one : kNamed) {
    const PeakRate& peak = PeakOf(peaks, one.precision);
    text += fmt::format("{}{} {:.0f} {} {}", text.empty() ? "" : ", ", one.name, peak.giga_ops,
                        one.unit, peak.instruction);
  }
  return text;
}

Report PeaksReport(const Peaks& peaks) {
  Report report;
  for (const Named& one : kNamed) {
    const PeakRate& peak = PeakOf(peaks, one.precision);
    Report line;
    line.Set("gop_s", peak.giga_ops).Set("instruction", peak.instruction);
    report.Set(one.key, std::move(line));
  }
  return report;
}

MachineFloor::MachineFloor(const Context& context)
    : gpu_(context.device_spec().kind == DeviceKind::kCuda),
      warm_(context.scope().policy == MeasurePolicy::kWarm),
      warm_bytes_(static_cast<double>(WarmWeightBytes(context.device_spec()))),
      executor_(context.executor()) {
  const DeviceSpec& spec = context.device_spec();
  if (gpu_) {
    // Weights are decoded and multiplied on the tensor cores, in blocks of codes or not.
    read_gb_s_ = spec.read_gb_s;
    peaks_.fill({spec.bf16_gflop_s, "tensor cores"});
    peaks_[static_cast<std::size_t>(Precision::kF32)] = {spec.f32_gflop_s, "fma"};
    return;
  }
  read_gb_s_ = MeasureReadBandwidth(executor_);
  peaks_ = MeasurePeaks(spec, executor_);
}

double MachineFloor::ReadUs(double bytes) {
  if (gpu_ || !warm_) return bytes / (read_gb_s_ * 1e3);
  const double rotating = std::max(bytes, warm_bytes_);
  const auto [at, first] = warm_seconds_.try_emplace(std::llround(rotating), 0.0);
  if (first) at->second = MeasureReadSeconds(executor_, at->first);
  return at->second * 1e6 * bytes / rotating;
}

double MachineFloor::Us(double bytes, double operations, Precision precision) {
  const double memory = ReadUs(bytes);
  return operations > 0 ? std::max(memory, operations / (peak(precision).giga_ops * 1e3)) : memory;
}

std::string MachineFloor::Text() const {
  if (gpu_) {
    return fmt::format("floor: {:.0f} GB/s read, bf16 {:.0f} TFLOP/s", read_gb_s_,
                       peak(Precision::kBF16).giga_ops / 1e3);
  }
  const std::string read =
      warm_ ? "reading from the last-level cache" : fmt::format("{:.1f} GB/s read", read_gb_s_);
  return fmt::format("floor: {}, {}", read, PeaksText(peaks_));
}

Precision BestPrecision(DataType weights) {
  if (GetTypeInfo(weights).block_quantised) return Precision::kI8;
  return weights == DataType::kBF16 ? Precision::kBF16 : Precision::kF32;
}

}  // namespace tilewright::cli
