#include "machine_floor.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::cli {

MachineFloor::MachineFloor(const Context& context)
    : gpu_(context.device_spec().kind == DeviceKind::kCuda) {
  const DeviceSpec& spec = context.device_spec();
  if (gpu_) {
    // Weights are decoded and multiplied on the tensor cores, in blocks of codes or not.
    read_gb_s_ = spec.read_gb_s;
    peaks_.fill({spec.bf16_gflop_s, "tensor cores"});
    peaks_[static_cast<std::size_t>(Precision::kF32)] = {spec.f32_gflop_s, "fma"};
    return;
  }
  read_gb_s_ = MeasureReadBandwidth(context.executor());
  for (const Precision p : {Precision::kI8, Precision::kBF16, Precision::kF32})
    peaks_[static_cast<std::size_t>(p)] = BestPeak(spec, context.executor(), p);
}

double MachineFloor::Us(double bytes, double operations, Precision precision) const {
  const double memory = bytes / (read_gb_s_ * 1e3);
  return operations > 0 ? std::max(memory, operations / (peak(precision).giga_ops * 1e3)) : memory;
}

std::string MachineFloor::Text() const {
  if (gpu_) {
    return fmt::format("floor: {:.0f} GB/s read, bf16 {:.0f} TFLOP/s", read_gb_s_,
                       peak(Precision::kBF16).giga_ops / 1e3);
  }
  return fmt::format("floor: {:.1f} GB/s read, int8 {:.0f} Gop/s, f32 {:.0f} GFLOP/s", read_gb_s_,
                     peak(Precision::kI8).giga_ops, peak(Precision::kF32).giga_ops);
}

Precision BestPrecision(DataType weights) {
  if (GetTypeInfo(weights).block_quantised) return Precision::kI8;
  return weights == DataType::kBF16 ? Precision::kBF16 : Precision::kF32;
}

}  // namespace tilewright::cli
