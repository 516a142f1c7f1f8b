#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/launch.h"
#include "tilewright/artifact.h"
#include "tilewright/device.h"
#include "tilewright/executor.h"
#include "tilewright/types.h"

/// What every kernel check needs: guarded memory on the GPU, data, comparison, time. A program's
/// parts, not a library's: trouble is thrown, caught once a kernel.
namespace tilewright::gpu_check {

/// Why a check cannot go on: a driver's error, or a spec the runner does not know.
class CheckError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class T>
T Must(Result<T> result, std::string_view what) {
  if (!result) throw CheckError(std::string(what) + ": " + result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// The GPU under test and one stream of it.
struct Gpu {
  explicit Gpu(const std::string& libcuda, int ordinal);

  const cuda::CudaDriver& driver;
  DeviceSpec spec;
  cuda::Context context;
  cuda::StreamHandle stream;
};

/// `bytes` of the GPU's memory between two guard bands. Everything is 0xff at first, which is NaN
/// in every float format: a read beyond an operand shows in the result, an output nobody wrote
/// stays NaN.
class Guarded {
 public:
  Guarded(const Gpu& gpu, std::size_t bytes);
  Guarded(const Gpu& gpu, std::span<const std::byte> data) : Guarded(gpu, data.size()) {
    Upload(data);
  }

  CUdeviceptr address() const { return memory_.address() + kGuard; }
  std::size_t bytes() const { return bytes_; }
  void Upload(std::span<const std::byte> data) const;
  void Poison() const;
  void Zero() const;
  std::vector<std::byte> Download() const;
  /// "" when both bands are as they were, else which byte beyond `what` was written.
  std::string GuardTrouble(std::string_view what) const;

 private:
  static constexpr std::size_t kGuard = 4096;
  const Gpu& gpu_;
  std::size_t bytes_;
  cuda::DeviceBuffer memory_;
};

/// A compiled kernel in the context, ready to launch.
class LoadedKernel {
 public:
  LoadedKernel(const Gpu& gpu, const ArtifactData& artifact);

  const KernelSpec& spec() const { return artifact_.spec; }
  const ArtifactData& artifact() const { return artifact_; }
  /// Queues one launch as a launcher of the kernel's room made it. A refusal of that launcher is a
  /// CheckError, and so are other threads or shared memory than the artifact was compiled for.
  void Launch(cuda::LaunchResult launch) const;
  int occupancy() const { return occupancy_; }  ///< CTAs a multiprocessor
  const Gpu& gpu() const { return gpu_; }

 private:
  const Gpu& gpu_;
  const ArtifactData& artifact_;
  cuda::Module module_;
  cuda::Function function_;
  int occupancy_ = 0;
};

/// The machine's threads. One user at a time.
Executor& Workers();
/// f(i) for i in [0, count) on them.
void ParallelFor(std::int64_t count, const std::function<void(std::int64_t)>& f);

/// `count` values of `type`, uniform in [-scale, scale), encoded; the same for the same seed.
std::vector<std::byte> RandomBytes(DataType type, std::int64_t count, double scale,
                                   std::uint64_t seed);
/// The same with a period of about a million: made in no time, good enough to be timed on.
std::vector<std::byte> PeriodicBytes(DataType type, std::int64_t count, double scale,
                                     std::uint64_t seed);
/// Decoded exactly.
std::vector<double> Decode(DataType type, std::span<const std::byte> bytes, std::int64_t count);

/// Half the distance of neighbouring values of a float format, relative: what rounding may do.
double UnitRoundoff(DataType type);

/// Compares results with float64. An element may be off by the rounding of its type and by
/// `accumulation` times the sum of the magnitudes that were added up to it; the whole by a relative
/// L2 error of both together.
class Comparison {
 public:
  Comparison(DataType output, double accumulation) : Comparison(output, accumulation, 0) {}
  /// Where what was added up cancels, the whole counts with the size that `typical` times the sum
  /// of magnitudes is expected to have.
  Comparison(DataType output, double accumulation, double typical);
  void Add(double got, double want, double magnitude, std::int64_t row, std::int64_t col);
  double RelL2() const;
  double worst() const { return worst_; }  ///< largest error over what is allowed; 1 is the limit
  double Limit() const;
  std::int64_t compared() const { return compared_; }
  /// "" or the first element that is wrong.
  std::string Trouble() const;

 private:
  double unit_, accumulation_, typical_;
  double error2_ = 0, want2_ = 0, magnitude2_ = 0, worst_ = 0;
  std::int64_t compared_ = 0, wrong_ = 0;
  std::string first_;
};

struct CaseReport {
  std::string shape;
  std::int64_t compared = 0;
  double rel_l2 = 0, limit = 0, worst = 0;
  bool repeatable = true;  ///< the second run gave the same bits
  std::string trouble;     ///< "" when it passed

  /// Adds to `trouble`.
  void Blame(const std::string& what) { trouble += trouble.empty() ? what : "; " + what; }
};

struct TimeReport {
  std::string shape;
  std::string how;      ///< "graph of 50, cold L2 over 4 sets"
  double us = 0;        ///< median of the replays, one launch
  double us_again = 0;  ///< the same measurement a second time
  double bytes = 0;     ///< fewest that must move
  double flops = 0;
  std::string unit;  ///< which ceiling counts for flops: "bf16", "f32"
  /// The same product by cuBLASLt (cublaslt.h), and this kernel again, in alternation: one after
  /// the other would not be fair, since the clock sinks as the chip warms up. 0: not timed.
  double cublaslt_us = 0, beside_us = 0;
};

struct KernelReport {
  std::vector<CaseReport> cases;
  std::vector<TimeReport> times;
};

/// Runs `launch` twice into the poisoned `output` and returns what the first run wrote. Fills in
/// `report` repeatability, trouble with guards of `output` and of `inputs` (named "input 0" ...).
/// `reset` is called before each run, for workspaces.
std::vector<std::byte> RunTwice(const Gpu& gpu, const Guarded& output,
                                std::span<const Guarded* const> others,
                                const std::function<void()>& reset,
                                const std::function<void()>& launch, CaseReport& report);

void Finish(const Comparison& comparison, CaseReport& report);

/// A graph of launches queued by `launch(set)`, with set rotating over `sets`; some 3 ms.
class Replay {
 public:
  Replay(const Gpu& gpu, int sets, const std::function<void(int)>& launch);
  double Us() const;  ///< runs the graph once; of one launch
  const std::string& how() const { return how_; }

 private:
  const Gpu& gpu_;
  cuda::Event begin_, end_;
  cuda::Graph graph_;
  int count_ = 1;
  std::string how_;
};

/// The median of 15 replays, twice.
TimeReport TimeReplay(const Replay& replay);
/// Medians of 15 replays of each, taken in turns.
std::pair<double, double> TimeAlternately(const Replay& a, const Replay& b);
TimeReport TimeLaunches(const Gpu& gpu, int sets, const std::function<void(int)>& launch);

/// Sets of `bytes_each` that together are three times the L2, at least 1.
int ColdSets(const Gpu& gpu, std::size_t bytes_each);

/// Device-to-device copy of 2 GiB: bytes read and written a second, in GB/s.
double MeasureCopyGbS(const Gpu& gpu);

/// What a family's runner gets.
struct Job {
  const Gpu& gpu;
  const LoadedKernel& kernel;
  std::uint64_t seed;
  bool check;  ///< compare with float64
  bool time;   ///< measure
  bool small;  ///< leave out large problems: for a memory checker, which is slow
};
using RunFamily = void (*)(const Job& job, KernelReport& report);

}  // namespace tilewright::gpu_check
