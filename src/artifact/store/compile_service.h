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

/// Turns specs into entry files: compiles, gates on resources, and bounds how many compilations of
/// this process run at the same time. Knows no folder, no lock and no other process. Throws
/// nothing. All functions from any thread.
class CompileService {
 public:
  struct Options {
    int threads = 0;  ///< compilations at once; 0: DefaultThreads()
    /// Budgeted for one compilation. One always runs; another starts only while what the machine,
    /// the cgroup and the address-space limit leave holds it and all that run.
    std::uint64_t memory_bytes = std::uint64_t{512} << 20;
    std::function<std::uint64_t()> available_memory{};  ///< empty: AvailableMemoryBytes
  };
  explicit CompileService(Options options);
  /// Cancels what waits or compiles and waits for it to end.
  ~CompileService();
  CompileService(const CompileService&) = delete;
  CompileService& operator=(const CompileService&) = delete;

  int threads() const { return threads_; }

  /// The right to compile, given back when it goes away. Build takes one by itself; this is for a
  /// caller that must hold it before it decides to compile.
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
  /// An empty place where none is free now, or after waiting `longest`.
  Place TryTake();
  Place Take(std::chrono::milliseconds longest);

  struct Kernel {
    std::string entry;  ///< bytes of an entry file (EncodeArtifact)
    double compile_ms = 0;
    ResourceUsage resources;
  };
  /// One kernel on the calling thread. `place` holds a place, or is empty: then Build waits for
  /// one. `cancelled` is asked about every 20 ms. Failures beyond the compiler's own: kUnsupported,
  /// deterministic, for a kernel that uses more than `family.limits(spec)` ("spills 120 bytes ...,
  /// at most 0 are allowed"), not deterministic for one of which the spills are unknown; those of
  /// PrepareCompile.
  tl::expected<Kernel, CompileFailure> Build(const KernelSpec& spec, const KernelFamily& family,
                                             const KernelSources& sources,
                                             const KernelCompiler& compiler,
                                             const CancelFn& cancelled = {}, Place place = {});

  /// What Run needs from its caller.
  struct RunControl {
    CancelFn cancelled{};                     ///< asked about every 20 ms
    std::function<void(std::size_t)> done{};  ///< after task i
  };
  /// Calls `task(i, cancelled)` for i = 0 .. count - 1 in that order on up to threads() threads and
  /// returns when all ended. The caller's thread runs no task: `control.done` and
  /// `control.cancelled` are called from it alone, `done` once a task. After a cancellation the
  /// remaining tasks are still called, with a CancelFn that is true: each tells its own outcome.
  /// Where no thread can be started, the tasks run on the caller's.
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

/// The first way in which `used` is more than `limits` allows, "spills 120 bytes, at most 0 are
/// allowed", or in which nobody can tell; empty when it is within them.
std::string OverLimits(const ResourceUsage& used, const ResourceLimits& limits);

}  // namespace tilewright
