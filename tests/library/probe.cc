#include "probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define TILEWRIGHT_NO_PROBE
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define TILEWRIGHT_NO_PROBE
#endif

namespace tilewright::test {
namespace {

std::atomic<bool> running{false};
std::atomic<long> allocations{0}, locks{0}, environment{0};

[[maybe_unused]] void Count(std::atomic<long>& counter) {
  if (running.load(std::memory_order_relaxed)) counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool ProbeWorks() {
#if defined(TILEWRIGHT_NO_PROBE)
  return false;
#else
  return true;
#endif
}

void StartProbe() {
  allocations = locks = environment = 0;
  running = true;
}

ProbeCounts StopProbe() {
  running = false;
  return {allocations, locks, environment};
}

}  // namespace tilewright::test

#if !defined(TILEWRIGHT_NO_PROBE)
using tilewright::test::allocations;
using tilewright::test::Count;
using tilewright::test::environment;
using tilewright::test::locks;

extern "C" {
extern char** environ;
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t size) noexcept {
  Count(allocations);
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  Count(allocations);
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) noexcept {
  Count(allocations);
  return __libc_realloc(memory, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  Count(allocations);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  *memory = memalign(alignment, size);
  return *memory != nullptr ? 0 : ENOMEM;
}
void free(void* memory) noexcept { __libc_free(memory); }

void* mmap(void* address, std::size_t length, int protection, int flags, int fd,
           off_t offset) noexcept {
  Count(allocations);
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Count(locks);
  using Function = int (*)(pthread_mutex_t*);
  static std::atomic<Function> next{nullptr};
  Function lock = next.load();
  if (lock == nullptr) {
    lock = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    next = lock;
  }
  return lock(mutex);
}

char* getenv(const char* name) noexcept {
  Count(environment);
  const std::size_t length = std::strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
      return *entry + length + 1;
  }
  return nullptr;
}
}
#endif
