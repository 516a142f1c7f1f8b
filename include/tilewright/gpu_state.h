#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewright/result.h"

namespace tilewright::cuda {

/// What a GPU is doing, as NVIDIA's management library (NVML) tells it. What it does not tell is 0
/// or empty.
struct GpuState {
  int sm_mhz = 0, sm_most_mhz = 0;  ///< clock of the multiprocessors now, and the highest
  int memory_mhz = 0;
  double watts = 0, most_watts = 0;  ///< power drawn, and the limit in force
  int celsius = 0;
  /// Why the clocks are below the highest: "power cap", "heat", ...
  std::vector<std::string> limits;
  /// Whether one of `limits` is a fault of power or cooling: what is timed now is not what this GPU
  /// can do. A power cap is none; heavy products meet it on any board.
  bool slowed = false;
  struct Process {
    int pid = 0;
    std::uint64_t bytes = 0;  ///< of the GPU's memory; 0: not told
  };
  std::vector<Process> processes;  ///< that compute on it, this one among them
};

/// The state of the GPU `ordinal` of the driver's library (CudaDeviceOptions::library), read now,
/// in some milliseconds. NVML is looked for as libnvidia-ml.so.1, or in the file that the
/// environment variable TILEWRIGHT_NVML names, and closed again. kUnavailable, with the reason,
/// where it is missing or does not know the GPU.
Result<GpuState> ReadGpuState(int ordinal, const std::string& library = "");

}  // namespace tilewright::cuda
