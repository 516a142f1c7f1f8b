#pragma once

#include <array>

#include "peak.h"
#include "tilewright/tilewright.h"

namespace tilewright::cli {

/// What bounds any kernel: the rate of the memory and the peak of each precision. Of a CPU measured
/// in this run, of a GPU by the clocks and units of the board.
class MachineFloor {
 public:
  explicit MachineFloor(const Context& context);

  /// Microseconds that `bytes` take, or `operations` in `precision` if that is longer.
  double Us(double bytes, double operations, Precision precision) const;

  double read_gb_s() const { return read_gb_s_; }
  const PeakRate& peak(Precision precision) const {
    return peaks_[static_cast<std::size_t>(precision)];
  }
  /// "floor: 4917 GB/s read, bf16 1071 TFLOP/s", for people.
  std::string Text() const;

 private:
  bool gpu_;
  double read_gb_s_ = 0;
  std::array<PeakRate, 4> peaks_;
};

/// The precision at which products with weights of this type are computed at best.
Precision BestPrecision(DataType weights);

}  // namespace tilewright::cli
