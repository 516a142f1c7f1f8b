#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <chrono>
#include <climits>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#include "tilewright/executor.h"

namespace tilewright {
namespace {

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void FutexWake(std::atomic<std::uint32_t>& word, int threads) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, threads, nullptr,
          nullptr, 0);
}

/// Spins until `done()` or until `limit` has passed; true if done. Reads the clock every 64
/// iterations.
template <class Done>
bool SpinUntil(std::chrono::microseconds limit, Done done) {
  for (int i = 0; i < 64; ++i) {
    if (done()) return true;
    Pause();
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

class SerialExecutorImpl final : public Executor {
 public:
  int workers() const override { return 1; }
  void ParallelFor(int count, Task task, void* context) override {
    for (int i = 0; i < count; ++i) task(context, i, 0);
  }
};

class ThreadPool;

/// The pool whose task this thread is executing, and its worker number there.
thread_local const ThreadPool* current_pool = nullptr;
thread_local int current_worker = 0;

/// Runs one job at a time. `epoch_` is odd while a job is open. A worker that sees an odd epoch marks
/// itself as inside and checks the epoch again: if it is unchanged, the caller cannot have found it
/// outside after closing, so the job's fields stay unchanged until the worker leaves. A worker that is
/// too late touches nothing. So the caller never waits for a worker that is asleep or not scheduled,
/// only for those that hold a task.
///
/// The first tasks are dealt out, one to each worker, and a counter hands out the others in ascending
/// order. With the counter alone each waits, one after the other, for a line that another core has just
/// written: on 16 threads of a shared Xeon, where that takes 0.1 us, as long as many an operation of a
/// token. What a worker writes as it enters, begins and leaves is on lines of its own, for the same reason.
class ThreadPool final : public Executor {
 public:
  ThreadPool(int threads, int spin_us)
      : spin_(spin_us < 0 ? 0 : spin_us), slots_(static_cast<std::size_t>(threads)) {
    threads_.reserve(static_cast<std::size_t>(threads - 1));
    for (int worker = 1; worker < threads; ++worker) {
      try {
        threads_.emplace_back([this, worker] { WorkerLoop(worker); });
      } catch (const std::system_error&) {
        break;  // the process may not create more threads; the pool works with those it has
      }
    }
  }

  ~ThreadPool() override {
    stop_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(2, std::memory_order_seq_cst);
    FutexWake(epoch_, INT_MAX);
    for (std::thread& thread : threads_) thread.join();
  }

  int workers() const override { return static_cast<int>(threads_.size()) + 1; }

  void ParallelFor(int count, Task task, void* context) override {
    if (count <= 0) return;
    if (current_pool == this) {
      // Called from inside a task: the other workers may all be waiting for this one, so run it
      // here, as the current worker.
      for (int i = 0; i < count; ++i) task(context, i, current_worker);
      return;
    }
    const ThreadPool* outer_pool = current_pool;
    const int outer_worker = current_worker;
    current_pool = this;
    current_worker = 0;
    if (count == 1 || threads_.empty()) {
      for (int i = 0; i < count; ++i) task(context, i, 0);
    } else {
      RunJob(count, task, context);
    }
    current_pool = outer_pool;
    current_worker = outer_worker;
  }

 private:
  /// What a worker writes, each on a line of its own: others look at the one while it writes the other.
  struct Slot {
    alignas(64) std::atomic<bool> inside{false};  ///< of a job; not used of the caller
    /// Epoch of the last job whose task was dealt to this worker and begun, by whomever.
    alignas(64) std::atomic<std::uint32_t> begun{0};
  };

  void RunJob(int count, Task task, void* context) {
    assert((epoch_.load() & 1) == 0 && "two threads in one ParallelFor");
    const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
    if (epoch == 1) {  // the first of all, or of the next 2^31: no epoch is met again
      for (Slot& slot : slots_) slot.begun.store(0, std::memory_order_relaxed);
    }
    if (count > workers()) next_.store(workers(), std::memory_order_relaxed);
    task_ = task;
    context_ = context;
    count_ = count;
    epoch_.store(epoch, std::memory_order_seq_cst);  // open: publishes the fields above
    // A worker increments sleepers_ before it checks the epoch for the last time, so either it sees
    // the new epoch or we see the sleeper.
    if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWake(epoch_, count - 1);
    TakeTasks(epoch, 0);
    epoch_.store(epoch + 1, std::memory_order_seq_cst);  // closed: no worker enters from here on
    WaitForWorkers();
  }

  void TakeTasks(std::uint32_t epoch, int worker) {
    const Task task = task_;
    void* const context = context_;
    const int count = count_, dealt = count < workers() ? count : workers();
    // Its own, and those of workers behind it that have not come.
    for (int i = worker; i < dealt && TakeDealt(epoch, i); ++i) task(context, i, worker);
    while (count > dealt) {
      const int i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) break;
      task(context, i, worker);
    }
    for (int i = 0; i < dealt; ++i) {
      if (TakeDealt(epoch, i)) task(context, i, worker);
    }
  }

  /// Whether task i, dealt to worker i, was not begun; it is now.
  bool TakeDealt(std::uint32_t epoch, int i) {
    std::atomic<std::uint32_t>& begun = slots_[static_cast<std::size_t>(i)].begun;
    return begun.load(std::memory_order_relaxed) != epoch &&
           begun.exchange(epoch, std::memory_order_relaxed) != epoch;
  }

  bool Idle() const {
    for (const Slot& slot : slots_) {
      if (slot.inside.load(std::memory_order_seq_cst)) return false;
    }
    return true;
  }

  void WaitForWorkers() {
    if (SpinUntil(spin_, [this] { return Idle(); })) return;
    // A long task, or a worker that lost its processor: sleep.
    caller_waits_.store(1, std::memory_order_seq_cst);
    for (;;) {
      const std::uint32_t waits = caller_waits_.load(std::memory_order_seq_cst);
      if (Idle()) break;
      FutexWait(caller_waits_, waits);
    }
    caller_waits_.store(0, std::memory_order_relaxed);
  }

  void Leave(Slot& slot) {
    slot.inside.store(false, std::memory_order_seq_cst);
    std::uint32_t waits = caller_waits_.load(std::memory_order_seq_cst);
    if (waits == 0) return;
    // Another number, so that a caller that found this worker inside does not fall asleep any more.
    caller_waits_.compare_exchange_strong(waits, waits + 1, std::memory_order_seq_cst);
    FutexWake(caller_waits_, 1);
  }

  void WorkerLoop(int worker) {
    current_pool = this;
    current_worker = worker;
    Slot& slot = slots_[static_cast<std::size_t>(worker)];
    std::uint32_t seen = 0;
    for (;;) {
      const auto news = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
      if (!SpinUntil(spin_, news)) {
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        while (epoch_.load(std::memory_order_seq_cst) == seen) FutexWait(epoch_, seen);
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      }
      seen = epoch_.load(std::memory_order_seq_cst);
      if (stop_.load(std::memory_order_relaxed)) return;
      if ((seen & 1) == 0) continue;
      slot.inside.store(true, std::memory_order_seq_cst);
      if (epoch_.load(std::memory_order_seq_cst) == seen) TakeTasks(seen, worker);
      Leave(slot);
    }
  }

  // Idle workers spin on `epoch_`, and find the job on the same line. Its fields are written by the
  // caller of ParallelFor while no job is open and no worker is inside.
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  int count_ = 0;
  Task task_ = nullptr;
  void* context_ = nullptr;

  alignas(64) std::atomic<int> next_{0};  ///< the task that the counter hands out next
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> caller_waits_{0};  ///< 0: it does not sleep
  std::atomic<bool> stop_{false};
  const std::chrono::microseconds spin_;
  std::vector<Slot> slots_;  ///< of every worker, the caller's first
  std::vector<std::thread> threads_;
};

}  // namespace

Executor& SerialExecutor() {
  static SerialExecutorImpl executor;
  return executor;
}

std::unique_ptr<Executor> MakeThreadPool(int threads, int spin_us) {
  return std::make_unique<ThreadPool>(threads < 1 ? 1 : threads, spin_us);
}

}  // namespace tilewright
