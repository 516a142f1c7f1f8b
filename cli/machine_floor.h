#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "peak.h"
#include "report.h"
#include "tilewright/tilewright.h"

namespace tilewright::cli {

using Peaks = std::array<PeakRate, 4>;  ///< by Precision up to kI8; kAuto has none
/// Of products in `precision`, not kAuto. kW8A8 takes the instructions of kI8.
const PeakRate& PeakOf(const Peaks& peaks, Precision precision);

/// The peaks of every precision of a CPU, measured now.
Peaks MeasurePeaks(const DeviceSpec& device, Executor& executor);
/// "int8 1204 Gop/s vpdpbusd, bf16 ... vdpbf16ps, f32 301 GFLOP/s vfmadd zmm".
std::string PeaksText(const Peaks& peaks);
/// {"i8": {"gop_s": 1204, "instruction": "vpdpbusd"}, "bf16": ..., "f32": ...}
Report PeaksReport(const Peaks& peaks);

/// What bounds every step of a model's pass.
struct MachineRates {
  double read_gb_s = 0;
  PeakRate peak;
};

/// What bounds any kernel: the rate of the memory and the peak of each precision. Of a CPU measured
/// in this run, of a GPU by the clocks and units of the board.
class MachineFloor {
 public:
  /// Under the policy of `context`.
  explicit MachineFloor(const Context& context);

  /// Microseconds that `bytes` take, or `operations` in `precision` if that is longer. Cold, bytes
  /// come at the rate of the memory; warm, a CPU takes what reading so many bytes again and again does
  /// (MeasureReadSeconds), or WarmWeightBytes if that is more, which is measured now.
  double Us(double bytes, double operations, Precision precision);

  double read_gb_s() const { return read_gb_s_; }
  const PeakRate& peak(Precision precision) const { return PeakOf(peaks_, precision); }
  const Peaks& peaks() const { return peaks_; }
  /// "floor: 4917 GB/s read, bf16 1071 TFLOP/s", for people.
  std::string Text() const;

 private:
  double ReadUs(double bytes);

  bool gpu_;
  bool warm_;
  double warm_bytes_;
  Executor& executor_;
  double read_gb_s_ = 0;
  Peaks peaks_;
  std::map<std::int64_t, double> warm_seconds_;  ///< by bytes
};

/// The precision at which products with weights of this type are computed at best.
Precision BestPrecision(DataType weights);

}  // namespace tilewright::cli
