#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "common.h"
#include "machine_floor.h"
#include "report.h"

namespace tilewright::cli {

/// What a run computes and reads at least.
struct LeastPasses {
  double passes = 1;  ///< each reads the weights once
  double rows = 0, logits_rows = 0;
  double positions = 0;  ///< of the KV cache, summed over what all passes read
};

/// The minimum cost of the passes of a model: the arithmetic of the projections (without attention),
/// or reading the weights and the KV cache. Of a CPU by rates that are measured, of a GPU by the
/// clocks and units of the board.
class ModelFloor {
 public:
  struct Named {
    std::string name;
    LeastPasses least;
  };

  /// `loaded` must outlive it; `activations` is the word of the option.
  ModelFloor(const LoadedModel& loaded, const std::string& activations);

  /// Has Measure read as many bytes as one of these passes does.
  void Expect(const LeastPasses& least);
  /// What this machine can do now. Taken before and after the runs, and the better of the two counts,
  /// since a neighbour on the host may have taken a share. What a pass reads is read as it is by the
  /// bench, again and again by the same threads: a model's weights may stay in the last-level cache.
  void Measure();

  double Seconds(const LeastPasses& least) const;
  /// What one of the passes reads, on average.
  double PassBytes(const LeastPasses& least) const;
  /// The rate at which they are read.
  double PassGbS(const LeastPasses& least) const;

  const MachineRates& rates() const { return rates_; }
  /// read_gb_s, peak_gop_s and peak_instruction; of a CPU also peaks and hand_over_ns_*.
  void SetRates(Report& report) const;
  /// "floor: 38.5 GB/s read, 2092 Gop/s vpdpbusd, measured in this run", and of a CPU what a
  /// pass of each of the runs reads, the peaks of every precision, and how far apart the workers are.
  std::string Text(std::span<const Named> runs) const;

 private:
  double ReadSeconds(double bytes) const;
  bool on_cpu() const { return loaded_.context->device_spec().kind == DeviceKind::kCpu; }

  const LoadedModel& loaded_;
  Precision precision_;  ///< of the multiplications, as the weights and the option allow
  MachineRates rates_;
  Peaks peaks_;                            ///< of a CPU, of every precision
  std::map<double, double> read_seconds_;  ///< by bytes, where they are measured
  double row_ops_ = 0;                     ///< of the layers, for one row
  double logits_ops_ = 0;                  ///< of the output projection, for one row
  std::vector<double> hand_over_ns_;       ///< of a CPU, before and after the runs
};

/// "12 %": of the floor's rate; "-" where that could not be measured.
std::string OfFloor(double rate, double floor);

}  // namespace tilewright::cli
