#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tilewright::cuda {

/// A libcuda without a GPU, for tests: a shared object with the functions that the library calls.
/// It is as lazy as CUDA may be: work that is given to a stream is done when somebody waits for it,
/// and then only what that wait needs. Handles are checked as the driver does, contexts among them.
/// Access beyond an allocation is an illegal address, which ends the context.
///
/// Two GPUs, H200s by their attributes, of 1 GiB. Any thread.
///
/// For the command line, which loads it as libcuda.so.1: FAKE_CUDA_VERSION is what
/// cuDriverGetVersion answers, and FAKE_CUDA_ANSWERS orders answers, "cuMemAlloc=2@3,cuInit=100":
/// 3 calls of cuMemAlloc succeed, and the next is out of memory.
/// FAKE_CUDA_FRESH is the byte that new memory is filled with, FAKE_CUDA_MIB how much there is, and
/// FAKE_CUDA_CTAS how many CTAs of any kernel fit on a multiprocessor.
class FakeCuda {
 public:
  virtual ~FakeCuda() = default;

  /// What was launched, when it runs. `params` is the block of the only argument, of which more
  /// bytes than any block has are copied.
  struct Launch {
    std::string symbol;
    std::array<unsigned, 3> grid{}, block{}, cluster{};
    unsigned dynamic_smem_bytes = 0;
    bool programmatic = false;  ///< may start before the work in front of it has ended
    bool cooperative = false;   ///< refused where not all CTAs fit at once
    std::array<std::byte, 1280> params{};
    std::uintptr_t stream = 0;
  };
  /// Does the work of the kernels; returns a CUresult. By default nothing is done.
  virtual void SetKernels(std::function<int(const Launch& launch)> run) = 0;

  /// How long a kernel takes by the time stamps of events, between any two of which lies a millisecond
  /// beside; by default, and everything else, no time.
  virtual void SetLaunchTimes(std::function<double(const Launch& launch)> us) = 0;

  /// Puts work into a stream of the calling thread's current context, as a library beside the
  /// driver does; nullptr only asks whether there is one. Returns a CUresult, as `work` does.
  virtual int Queue(std::uintptr_t stream, std::function<int()> work) = 0;

  /// While mute, launches are dropped, and neither they nor looking for the current context count,
  /// lock or allocate: for counting what the library does.
  virtual void SetMute(bool mute) = 0;

  /// Calls of the driver since the last StartCounting; what only describes a board or puts an error
  /// into words does not count.
  virtual void StartCounting() = 0;
  virtual std::size_t calls() const = 0;
  virtual std::size_t calls(const std::string& function) const = 0;
  /// Objects that were made and not released, as "2 streams, 1 memory"; "" when there are none. The
  /// contexts are counted once for each time one was retained.
  virtual std::string alive() const = 0;
  /// Pieces of work that were given and not done.
  virtual std::size_t pending() const = 0;

  /// The next call of `function`, or the one that comes after so many others, answers this CUresult and
  /// does nothing.
  virtual void AnswerNext(const std::string& function, int result, int after = 0) = 0;
  /// What cuInit and cuDriverGetVersion answer from now on.
  virtual void SetDriver(int init, int version) = 0;
};

/// Exported by the shared object as "fake_cuda".
using FakeCudaFunction = FakeCuda* (*)();

/// The shared object at `path`, loaded for good; it is what CudaDriver::Load(path) gets.
FakeCuda& LoadFakeCuda(const std::string& path);

}  // namespace tilewright::cuda
