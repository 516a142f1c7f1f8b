#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/memory.h"
#include "tilewright/executor.h"

namespace tilewright {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t RoundUp(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Blocks of 2 MiB and more come directly from mmap: untouched pages cost nothing, and Free returns
/// them to the system at once.
class MmapAllocator final : public Allocator {
 public:
  void* Allocate(std::size_t bytes, std::size_t alignment) override {
    if (alignment < 64) alignment = 64;
    if (bytes > std::numeric_limits<std::size_t>::max() / 4 || alignment > (std::size_t{1} << 40))
      return nullptr;
    if (bytes < kHugePage) {
      void* memory = nullptr;
      return posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) == 0 ? memory : nullptr;
    }
    if (alignment < kHugePage) alignment = kHugePage;
    return Map(RoundUp(bytes, kPage), alignment);
  }

  void Free(void* memory, std::size_t bytes) override {
    if (memory == nullptr) return;
    if (bytes < kHugePage) {
      std::free(memory);
    } else {
      munmap(memory, RoundUp(bytes, kPage));
    }
  }

 private:
  static void* Map(std::size_t bytes, std::size_t alignment) {
    // To get an aligned range from mmap, map more than needed and unmap the ends.
    void* raw = mmap(nullptr, bytes + alignment, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    const auto start = reinterpret_cast<std::uintptr_t>(raw);
    const std::uintptr_t aligned = RoundUp(start, alignment);
    if (aligned != start) munmap(raw, aligned - start);
    const std::uintptr_t end = start + bytes + alignment;
    if (aligned + bytes != end)
      munmap(reinterpret_cast<void*>(aligned + bytes), end - (aligned + bytes));
    // A hint: without huge pages the block still works, with more TLB misses.
    madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);
    return reinterpret_cast<void*>(aligned);
  }
};

}  // namespace

Allocator& DefaultAllocator() {
  static MmapAllocator allocator;
  return allocator;
}

Buffer Buffer::Make(std::size_t bytes, Allocator& allocator, std::size_t alignment) {
  Buffer buffer;
  buffer.data_ = allocator.Allocate(bytes, alignment);
  if (buffer.data_ != nullptr) {
    buffer.size_ = bytes;
    buffer.allocator_ = &allocator;
  }
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      allocator_(std::exchange(other.allocator_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) allocator_->Free(data_, size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    allocator_ = std::exchange(other.allocator_, nullptr);
  }
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) allocator_->Free(data_, size_);
}

}  // namespace tilewright
