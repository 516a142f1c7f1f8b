#include <algorithm>
#include <atomic>

#include "tilewright/executor.h"

namespace tilewright {

LimitedExecutor::LimitedExecutor(Executor& inner, int limit)
    : inner_(inner), workers_(std::clamp(limit, 1, std::max(1, inner.workers()))) {}

void LimitedExecutor::ParallelFor(int count, Task task, void* context) {
  if (workers_ == inner_.workers()) return inner_.ParallelFor(count, task, context);
  const int jobs = std::min(workers_, count);
  if (jobs <= 1) {
    for (int i = 0; i < count; ++i) task(context, i, 0);
    return;
  }
  // The number of the job serves as the number of the worker: the inner executor's own may be any.
  std::atomic<int> next{0};
  inner_.Run(jobs, [&](int job, int) {
    for (;;) {
      const int i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      task(context, i, job);
    }
  });
}

}  // namespace tilewright
