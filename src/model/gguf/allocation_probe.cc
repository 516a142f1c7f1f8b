// In a file apart from the tests that use it: where new and delete are inlined next to each other,
// the compiler warns that malloc and free do not match them.
#include "model/gguf/allocation_probe.h"

#include <cstdlib>
#include <new>

namespace tilewright::test {

std::size_t& LargestAllocation() {
  static std::size_t largest = 0;
  return largest;
}

}  // namespace tilewright::test

void* operator new(std::size_t size) {
  std::size_t& largest = tilewright::test::LargestAllocation();
  if (size > largest) largest = size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
