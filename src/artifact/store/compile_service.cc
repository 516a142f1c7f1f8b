#include "artifact/store/compile_service.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "artifact/build.h"
#include "core/memory.h"
#include "core/text.h"
#include "tilewright/executor.h"

namespace tilewright {
namespace {

using std::chrono::milliseconds;

/// How often a caller's CancelFn is polled and available memory is checked.
constexpr milliseconds kPoll{20};

tl::unexpected<CompileFailure> Failed(Error error, std::string log = {},
                                      bool deterministic = false) {
  return tl::unexpected<CompileFailure>(
      CompileFailure{deterministic, std::move(error), std::move(log)});
}

tl::unexpected<CompileFailure> Cancelled(const KernelSpec& spec) {
  return Failed({ErrorCode::kCancelled, Format("{}: cancelled", SpecName(spec))});
}

tl::expected<CompileService::Kernel, CompileFailure> Make(const CompileInput& input,
                                                          const KernelCompiler& compiler,
                                                          const CancelFn& cancelled) {
  tl::expected<CompileOutput, CompileFailure> output = compiler.Compile(input.Job(), cancelled);
  if (!output) {
    output.error().error.message =
        Format("{}: {}", SpecName(input.spec), output.error().error.message);
    return tl::unexpected<CompileFailure>(std::move(output.error()));
  }
  if (const std::string over = OverLimits(output->resources, input.limits); !over.empty()) {
    // Unknown spills are not remembered: another version of this library may understand the log.
    const bool known = output->resources.SpillBytes().has_value();
    // Also put first in the log, which is all that is kept of a remembered failure.
    return Failed({ErrorCode::kUnsupported, Format("{}: {}", SpecName(input.spec), over)},
                  Format("{}\n{}", over, output->log), known);
  }
  CompileService::Kernel kernel;
  kernel.compile_ms = output->compile_ms;
  kernel.resources = output->resources;
  Result<std::string> entry = MakeEntry(input, compiler.identity(), *output);
  if (!entry) return Failed(std::move(entry.error()), std::move(output->log));
  kernel.entry = std::move(*entry);
  return kernel;
}

/// The tasks of one Run: which is next, and which have ended but are not reported yet.
class TaskQueue {
 public:
  explicit TaskQueue(std::size_t count) : count_(count) {}

  std::optional<std::size_t> Take() {
    const std::size_t task = next_.fetch_add(1);
    if (task >= count_) return std::nullopt;
    return task;
  }
  void End(std::size_t task) {
    const std::lock_guard lock(mutex_);
    ended_.push_back(task);
    changed_.notify_one();
  }
  /// The tasks that ended since the last call; waits at most `longest` for one.
  std::vector<std::size_t> Ended(milliseconds longest) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, longest, [&] { return !ended_.empty(); });
    return std::exchange(ended_, {});
  }

 private:
  const std::size_t count_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> ended_;
};

class Joined {
 public:
  ~Joined() {
    for (std::thread& thread : threads_) thread.join();
  }
  template <class F>
  bool Start(F&& f) {
    try {
      threads_.emplace_back(std::forward<F>(f));
      return true;
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  bool empty() const { return threads_.empty(); }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace

CompileService::CompileService(Options options)
    : threads_(options.threads > 0 ? options.threads : DefaultThreads()),
      memory_bytes_(options.memory_bytes),
      available_memory_(options.available_memory ? std::move(options.available_memory)
                                                 : AvailableMemoryBytes) {}

CompileService::~CompileService() {
  closing_ = true;
  std::unique_lock lock(mutex_);
  given_.notify_all();
  given_.wait(lock, [&] { return inside_ == 0 && running_ == 0; });
}

bool CompileService::MayStart() const {
  if (running_ == 0) return true;
  if (running_ >= threads_) return false;
  // Running compilations may not have allocated their share yet, so available memory is compared
  // with the budgets of all of them and one more, by a division that cannot overflow.
  const std::uint64_t jobs = static_cast<std::uint64_t>(running_) + 1;
  return memory_bytes_ == 0 || available_memory_() / memory_bytes_ >= jobs;
}

CompileService::Place CompileService::TryTake() {
  const std::lock_guard lock(mutex_);
  if (!MayStart()) return Place();
  ++running_;
  return Place(this);
}

CompileService::Place CompileService::Take(milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  std::unique_lock lock(mutex_);
  // Nobody is notified when memory becomes free, so check again from time to time.
  while (!closing_) {
    if (MayStart()) {
      ++running_;
      return Place(this);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) break;
    given_.wait_until(lock, std::min(until, now + kPoll));
  }
  return Place();
}

void CompileService::Give() {
  const std::lock_guard lock(mutex_);
  if (running_ > 0) --running_;
  // Under the lock, since the object may be destroyed after it.
  given_.notify_all();
}

void CompileService::Forget() {
  running_ = 0;
  inside_ = 0;
}

void CompileService::Enter() {
  const std::lock_guard lock(mutex_);
  ++inside_;
}

void CompileService::Leave() {
  const std::lock_guard lock(mutex_);
  if (inside_ > 0) --inside_;
  given_.notify_all();
}

tl::expected<CompileService::Kernel, CompileFailure> CompileService::Build(
    const KernelSpec& spec, const KernelFamily& family, const KernelSources& sources,
    const KernelCompiler& compiler, const CancelFn& cancelled, Place place) {
  const Inside inside(*this);
  const CancelFn stop = [&] { return closing_ || (cancelled && cancelled()); };
  try {
    const Result<CompileInput> input = PrepareCompile(spec, family, sources);
    if (!input) return Failed(input.error());
    while (!place) {
      if (stop()) return Cancelled(spec);
      place = Take(kPoll);
    }
    return Make(*input, compiler, stop);
  } catch (const std::bad_alloc&) {
    return Failed({ErrorCode::kOutOfMemory, SpecName(spec) + ": no memory left to compile it"});
  } catch (const std::exception& exception) {
    return Failed({ErrorCode::kInternal, Format("{}: {}", SpecName(spec), exception.what())});
  } catch (...) {
    return Failed({ErrorCode::kInternal,
                   SpecName(spec) + ": the compiler threw something other than a std::exception"});
  }
}

void CompileService::Run(
    std::size_t count, const std::function<void(std::size_t task, const CancelFn& cancelled)>& task,
    const RunControl& control) {
  const Inside inside(*this);
  TaskQueue queue(count);
  std::atomic<bool> stopped{false};
  const auto poll = [&] {
    if (!stopped && (closing_ || (control.cancelled && control.cancelled()))) stopped = true;
    return stopped.load();
  };
  const CancelFn told = [&] { return stopped.load(); };
  Joined threads;
  for (std::size_t i = 0; i < std::min(count, static_cast<std::size_t>(threads_)); ++i) {
    const bool started = threads.Start([&] {
      while (const std::optional<std::size_t> next = queue.Take()) {
        task(*next, told);
        queue.End(*next);
      }
    });
    if (!started) break;
  }
  if (threads.empty()) {
    while (const std::optional<std::size_t> next = queue.Take()) {
      task(*next, poll);
      if (control.done) control.done(*next);
    }
    return;
  }
  for (std::size_t ended = 0; ended < count;) {
    poll();
    for (const std::size_t one : queue.Ended(kPoll)) {
      ++ended;
      if (control.done) control.done(one);
    }
  }
}

std::string OverLimits(const ResourceUsage& used, const ResourceLimits& limits) {
  if (used.registers > limits.max_registers) {
    return Format("uses {} registers per thread, at most {} are allowed", used.registers,
                  limits.max_registers);
  }
  const std::optional<std::uint64_t> spilled = used.SpillBytes();
  if (!spilled) {
    return Format(
        "spills an unknown amount (the compiler's log could not be parsed), at most {} bytes "
        "are allowed",
        limits.max_spill_bytes);
  }
  if (*spilled > limits.max_spill_bytes) {
    return Format("spills {} bytes per thread (stores and loads), at most {} are allowed", *spilled,
                  limits.max_spill_bytes);
  }
  if (used.stack_bytes > limits.max_stack_bytes) {
    return Format("uses {} bytes of stack per thread, at most {} are allowed", used.stack_bytes,
                  limits.max_stack_bytes);
  }
  return {};
}

}  // namespace tilewright
