#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "fake_cuda.h"

// What stands behind the functions of fake_cuda.cc.

namespace tilewright::cuda {

struct Ctx;

struct Evt {
  Ctx* ctx = nullptr;
  std::uint64_t recorded = 0, happened = 0;
  double at_us = 0;               ///< when it happened last
  struct Strm* stream = nullptr;  ///< of the last record
};
/// Work of a stream: something to do, or an event to wait for.
struct Job {
  std::function<CUresult()> run;
  Evt* wait = nullptr;
  std::uint64_t wait_for = 0;
};
using Jobs = std::deque<Job>;
struct Strm {
  Ctx* ctx = nullptr;
  Jobs jobs;
  std::unique_ptr<Jobs> captured;  ///< between BeginCapture and EndCapture
};
struct Fn {
  struct Ctx* ctx = nullptr;
  std::string symbol;
  unsigned smem_limit = 48 << 10;
};
struct Mod {
  Ctx* ctx = nullptr;
  std::map<std::string, Fn> functions;
};
/// The primary context of a GPU.
struct Ctx {
  int retained = 0;
  CUresult fault = CUDA_SUCCESS;
  std::map<std::uintptr_t, std::size_t> memory;
  std::size_t used = 0;
  std::set<void*> pinned;
  std::set<Strm*> streams;
  std::set<Evt*> events;
  std::set<Mod*> modules;
  std::set<Jobs*> graphs;  ///< captured and made of captured ones
  Strm legacy;
};

class State final : public FakeCuda {
 public:
  static constexpr int kGpus = 2;
  static constexpr unsigned kMaxSmem = 232448;

  void SetKernels(std::function<int(const Launch&)> run) override;
  void SetLaunchTimes(std::function<double(const Launch&)> us) override;
  State();
  int Queue(std::uintptr_t stream, std::function<int()> work) override;
  void SetMute(bool on) override { mute = on; }
  void StartCounting() override;
  std::size_t calls() const override;
  std::size_t calls(const std::string& function) const override;
  std::string alive() const override;
  std::size_t pending() const override;
  void AnswerNext(const std::string& function, int result, int after) override;
  void SetDriver(int init, int version) override;

  /// Every function goes through here: counts it, gives the answer that was ordered, and else calls
  /// `f` under the lock.
  template <class F>
  CUresult Enter(const char* name, F&& f) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    ++calls_[name];
    const auto ordered = answers_.find(name);
    if (ordered != answers_.end() && ordered->second.after-- == 0) {
      const CUresult answer = ordered->second.result;
      answers_.erase(ordered);
      return answer;
    }
    return f();
  }
  /// The same for what needs a context: the current one, unless its life is over.
  template <class F>
  CUresult InContext(const char* name, F&& f) {
    return Enter(name, [&]() -> CUresult {
      if (current == nullptr || current->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
      if (current->fault != CUDA_SUCCESS) return current->fault;
      return f(*current);
    });
  }
  /// Puts work into a stream, nullptr the legacy one.
  CUresult Give(Ctx& ctx, CUstream stream, Job job);
  Strm* Find(Ctx& ctx, CUstream stream);
  /// Does a stream's work, and what that waits for, until `done`.
  CUresult Drive(Strm& stream, const std::function<bool()>& done);
  CUresult DriveAll(Ctx& ctx);
  /// Whether all of it lies in one allocation.
  static bool Valid(const Ctx& ctx, CUdeviceptr at, std::size_t bytes);
  void Drop(Ctx& ctx);

  /// The variable `name`, for commands over this library, which call none of its functions.
  static int Setting(const char* name, int unset) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : unset;
  }

  static thread_local Ctx* current;
  std::array<Ctx, kGpus> gpus;
  std::atomic<bool> mute = false;
  int init = CUDA_SUCCESS, version = Setting("FAKE_CUDA_VERSION", 13000);
  std::size_t memory_bytes = static_cast<std::size_t>(Setting("FAKE_CUDA_MIB", 1024)) << 20;
  int ctas_that_fit = Setting("FAKE_CUDA_CTAS", 1);
  int fresh = Setting("FAKE_CUDA_FRESH", 0xff);  // bytes of memory never written
  std::function<int(const Launch&)> kernels;
  std::function<double(const Launch&)> launch_us;
  double clock_us = 0;

 private:
  mutable std::recursive_mutex mutex_;
  std::map<std::string, std::size_t> calls_;
  struct Answer {
    CUresult result;
    int after;  ///< calls that are answered as ever before this one
  };
  std::map<std::string, Answer> answers_;
};

State& TheState();

}  // namespace tilewright::cuda
