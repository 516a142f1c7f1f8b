#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace tilewright {

/// Runs `count` independent tasks, on the caller's threads. Implement it to run Tilewright inside
/// your own thread pool. ParallelFor returns when every task has run; it may be entered by one
/// thread at a time. Tasks must not throw and do not nest. `worker` is in [0, workers()), and two
/// tasks with the same worker number never run at the same time, so it can index scratch memory.
class Executor {
 public:
  using Task = void (*)(void* context, int task, int worker);

  virtual ~Executor() = default;
  virtual int workers() const = 0;
  virtual void ParallelFor(int count, Task task, void* context) = 0;

  /// As above for any callable `f(task, worker)`; allocates nothing.
  template <class F>
  void Run(int count, F&& f) {
    ParallelFor(
        count,
        [](void* context, int task, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(context))(task, worker);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

  /// As Run, on at most `limit` workers: `worker` is below `limit`.
  template <class F>
  void RunOn(int limit, int count, F&& f);
};

/// At most `limit` workers of another executor, as an executor. It runs at most `limit` tasks on
/// the other, each of which takes indices from a shared counter, so it works with any executor.
/// With a limit of 1, everything runs on the calling thread. Allocates nothing; the other executor
/// must outlive it.
class LimitedExecutor final : public Executor {
 public:
  /// `limit` is clamped to 1 .. inner.workers().
  LimitedExecutor(Executor& inner, int limit);
  int workers() const override { return workers_; }
  void ParallelFor(int count, Task task, void* context) override;

 private:
  Executor& inner_;
  int workers_;
};

template <class F>
void Executor::RunOn(int limit, int count, F&& f) {
  LimitedExecutor(*this, limit).Run(count, f);
}

/// Runs everything on the calling thread. Starts no thread.
Executor& SerialExecutor();

/// A pool of `threads` - 1 threads beside the caller; starts them now, joins them on destruction.
/// Workers spin for `spin_us` microseconds after a task before they sleep, since waking them
/// between the operations of one token would cost more than the work.
std::unique_ptr<Executor> MakeThreadPool(int threads, int spin_us = 200);

/// Number of threads this process may use: the smaller of what its CPU affinity and its cgroup
/// quota allow, at least 1.
int DefaultThreads();

/// Supplies the library's own buffers (packed weights, KV caches, arenas). Implementations must be
/// thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Memory of at least `bytes`, aligned to `alignment` (a power of two >= 64), or nullptr.
  virtual void* Allocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void Free(void* memory, std::size_t bytes) = 0;
};

/// Uses mmap for large blocks (and requests transparent huge pages), aligned new for small ones.
Allocator& DefaultAllocator();

/// An owning, aligned buffer from an Allocator. Movable; empty when default constructed or when
/// allocation failed.
class Buffer {
 public:
  Buffer() = default;
  static Buffer Make(std::size_t bytes, Allocator& allocator = DefaultAllocator(),
                     std::size_t alignment = 64);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  Allocator* allocator_ = nullptr;
};

}  // namespace tilewright
