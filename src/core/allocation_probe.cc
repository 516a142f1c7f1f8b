// In a file apart from those that use it: where new and delete are inlined next to each other, the
// compiler warns that malloc and free do not match them.
#include "core/allocation_probe.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace tilewright {
namespace {

constinit std::atomic<std::int64_t> g_count{0};
constinit std::atomic<std::size_t> g_largest{0};

}  // namespace

std::int64_t AllocationProbe::Count() { return g_count.load(std::memory_order_relaxed); }
std::size_t AllocationProbe::Largest() { return g_largest.load(std::memory_order_relaxed); }
void AllocationProbe::ForgetLargest() { g_largest.store(0, std::memory_order_relaxed); }

}  // namespace tilewright

void* operator new(std::size_t bytes) {
  using tilewright::g_count, tilewright::g_largest;
  g_count.fetch_add(1, std::memory_order_relaxed);
  std::size_t largest = g_largest.load(std::memory_order_relaxed);
  while (bytes > largest &&
         !g_largest.compare_exchange_weak(largest, bytes, std::memory_order_relaxed)) {
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
