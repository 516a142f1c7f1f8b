#include "peak.h"

#include <algorithm>

namespace tilewright::cli {
namespace {

struct Row {
  Precision precision;
  ArithmeticUnit unit;
};
// Best first; bf16 without a unit of its own is widened to f32.
constexpr Row kUnits[] = {
    {Precision::kI8, ArithmeticUnit::kAmxI8},     {Precision::kI8, ArithmeticUnit::kI8},
    {Precision::kBF16, ArithmeticUnit::kAmxBF16}, {Precision::kBF16, ArithmeticUnit::kBF16},
    {Precision::kBF16, ArithmeticUnit::kF32},     {Precision::kF32, ArithmeticUnit::kF32},
};

}  // namespace

PeakRate BestPeak(const DeviceSpec& device, Executor& executor, Precision precision) {
  if (precision == Precision::kAuto) precision = Precision::kI8;
  for (const Row& row : kUnits) {
    if (row.precision != precision) continue;
    if (const auto peak = MeasurePeak(device, executor, row.unit)) return *peak;
  }
  const double one = precision == Precision::kI8 ? device.i8_gop_s : device.f32_gflop_s;
  return {one * std::min(executor.workers(), DefaultThreads()), "assumed"};
}

}  // namespace tilewright::cli
