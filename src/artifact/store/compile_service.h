#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "tilewright/artifact_key.h"
#include "tilewright/compiler.h"
#include "tilewright/kernel_family.h"

namespace tilewright {

/// Turns specs into entry files: compiles, checks resource limits, and bounds how many compilations
/// this process runs at the same time. Knows nothing of folders, locks and other processes. Throws
/// nothing. All functions may be called from any thread.
class CompileService {
 public:
  struct Options {
    int threads = 0;  ///< compilations at once; 0: DefaultThreads()
    /// Budget of one compilation. One may always run; another starts only if the memory left by the
    /// machine, the cgroup and the address-space limit suffices for it and all that are running.
    std::uint64_t memory_bytes = std::uint64_t{512} << 20;
    std::function<std::uint64_t()> available_memory{};  ///< empty: AvailableMemoryBytes
  };
  explicit CompileService(Options options);
  /// Cancels waiting and running compilations and waits until they have ended.
  ~CompileService();
  CompileService(const CompileService&) = delete;
  CompileService& operator=(const CompileService&) = delete;

  int threads() const { return threads_; }

  /// The right to compile, released by the destructor. Build acquires one itself; this is for
  /// callers that must hold it before they decide to compile.
  class Place {
   public:
    Place() noexcept : service_(nullptr) {}
    Place(Place&& other) noexcept : service_(std::exchange(other.service_, nullptr)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(service_, other.service_);
      return *this;
    }
    ~Place() {
      if (service_ != nullptr) service_->Give();
    }
    explicit operator bool() const { return service_ != nullptr; }

   private:
    friend class CompileService;
    explicit Place(CompileService* service) : service_(service) {}
    CompileService* service_;
  };
  /// An empty place if none is free now, or after waiting `longest`.
  Place TryTake();
  Place Take(std::chrono::milliseconds longest);

  struct Kernel {
    std::string entry;  ///< bytes of an entry file (EncodeArtifact)
    double compile_ms = 0;
    ResourceUsage resources;
  };
  /// Compiles one kernel on the calling thread. If `place` is empty, Build waits for one.
  /// `cancelled` is polled about every 20 ms. Failures besides the compiler's own: kUnsupported for
  /// a kernel that exceeds `family.limits(spec)` ("spills 120 bytes ..., at most 0 are allowed";
  /// deterministic) or whose spills are unknown (not deterministic); those of PrepareCompile.
  tl::expected<Kernel, CompileFailure> Build(const KernelSpec& spec, const KernelFamily& family,
                                             const KernelSources& sources,
                                             const KernelCompiler& compiler,
                                             const CancelFn& cancelled = {}, Place place = {});

  /// What Run needs from its caller.
  struct RunControl {
    CancelFn cancelled{};                     ///< polled about every 20 ms
    std::function<void(std::size_t)> done{};  ///< after task i
  };
  /// Calls `task(i, cancelled)` for i = 0 .. count - 1 in that order on up to threads() threads and
  /// returns when all have ended. The calling thread runs no task; it alone calls `control.done`,
  /// once per task, and `control.cancelled`. After a cancellation the remaining tasks are still
  /// called, with a CancelFn that returns true, so that each reports its own outcome. If no thread
  /// can be started, the tasks run on the calling thread.
  void Run(std::size_t count,
           const std::function<void(std::size_t task, const CancelFn& cancelled)>& task,
           const RunControl& control);

  /// For the child of a fork, where the threads of the parent are gone: hold mutex() over the fork,
  /// then Forget() in the child before it is released.
  std::mutex& mutex() { return mutex_; }
  void Forget();

 private:
  /// Counts the calls that the destructor waits for.
  class Inside {
   public:
    explicit Inside(CompileService& service) : service_(service) { service_.Enter(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { service_.Leave(); }

   private:
    CompileService& service_;
  };

  bool MayStart() const;  // mutex_ held
  void Give();
  void Enter();
  void Leave();

  const int threads_;
  const std::uint64_t memory_bytes_;
  const std::function<std::uint64_t()> available_memory_;
  std::mutex mutex_;
  std::condition_variable given_;
  int running_ = 0;
  int inside_ = 0;  // calls of Build and Run
  std::atomic<bool> closing_{false};
};

/// The first respect in which `used` exceeds `limits` ("spills 120 bytes, at most 0 are allowed")
/// or is unknown; "" if it is within them.
std::string OverLimits(const ResourceUsage& used, const ResourceLimits& limits);

}  // namespace tilewright
