#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/harness.h"

namespace tilewright::gpu_check {

/// The GPU as its process told.
struct DeviceFacts {
  std::string name;
  std::string driver;
  std::string cublaslt;  ///< version of the library that products are compared with; "": none
  int compute_capability = 0;
  int sm_count = 0;
  std::int64_t l2_bytes = 0;
  double copy_gb_s = 0;         ///< measured: floors of bytes are counted with it
  double peak_bf16_tflops = 0;  ///< floors of matrix products are counted with it; 0: unknown
};

/// What became of one kernel.
struct KernelOutcome {
  std::string spec;
  std::string request;  ///< key, hex
  std::string compiler;
  ResourceUsage resources;
  std::uint32_t dynamic_smem_bytes = 0, threads = 0;
  std::size_t cubin_bytes = 0;
  int occupancy = 0;
  KernelReport report;
  std::string trouble;  ///< beside that of a case
  bool Passed() const;
};

void Describe(const ArtifactData& artifact, KernelOutcome& outcome);
std::string OutcomeJson(const KernelOutcome& outcome);
/// Fills in what a process printed, or why it printed nothing.
void TakeOutcome(const std::string& json, const std::string& death, KernelOutcome& outcome);

std::string DeviceJson(const Gpu& gpu, double copy_gb_s);
bool TakeDevice(const std::string& json, DeviceFacts& device);
/// The trouble in a child's answer that is no device.
std::string ErrorOf(const std::string& json);
/// The vendor's dense bf16 rate of known chips, 0 for others.
double PeakBf16Tflops(const DeviceFacts& device);

std::string DeviceLine(const DeviceFacts& device);
std::string CheckLine(const KernelOutcome& outcome);
std::string TimeLines(const KernelOutcome& outcome, const DeviceFacts& device);
/// Fewest microseconds that bytes and operations take at the device's ceilings.
double FloorUs(const TimeReport& time, const DeviceFacts& device);
std::string SummaryTable(const std::vector<KernelOutcome>& outcomes, const DeviceFacts& device);
/// Writes `file` and, beside it, the same as a table in .md.
void WriteReport(const std::string& file, const std::vector<KernelOutcome>& outcomes,
                 const DeviceFacts& device, std::uint64_t seed,
                 const std::vector<std::string>& command);

}  // namespace tilewright::gpu_check
