#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace tilewright {

/// Runs `count` independent tasks, on the caller's threads. Implement it to run Tilewright inside
/// your own thread pool. ParallelFor returns when every task has run; it may be entered by one
/// thread at a time. Tasks must not throw and do not nest. `worker` is in [0, workers()) and no two
/// tasks with one worker number run at once, so it indexes scratch memory.
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

/// At most `limit` workers of another executor, as an executor: tasks take indices from a counter in
/// at most `limit` jobs of the other, so that it works on any. With a limit of 1, everything runs on
/// the calling thread. Allocates nothing; the other executor must outlive it.
class LimitedExecutor final : public Executor {
 public:
  /// A limit below 1 counts as 1, one beyond inner.workers() as that.
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
/// Workers spin for `spin_us` microseconds after a task before they sleep: between the operations
/// of one token a futex wake would cost more than the work.
std::unique_ptr<Executor> MakeThreadPool(int threads, int spin_us = 200);

/// Threads this process may use: the smaller of its CPU affinity and its cgroup quota, at least 1.
int DefaultThreads();

/// Where the library takes its own buffers from (packed weights, KV cache, arenas). Thread-safe
/// implementations only.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Memory of at least `bytes`, aligned to `alignment` (a power of two >= 64), or nullptr.
  virtual void* Allocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void Free(void* memory, std::size_t bytes) = 0;
};

/// mmap for large blocks (transparent huge pages asked for), aligned new for small ones.
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
