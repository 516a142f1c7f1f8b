#include "model/gguf/gguf_generator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/text.h"

namespace tilewright {

Result<std::unique_ptr<GgufFile::Generator>> GgufFile::Generator::Create(
    std::span<const std::byte> header, std::uint64_t file_bytes, GgufWriter::Source source) {
  // Address space only: nothing is reserved for tensors that are never fetched at once.
  void* data = ::mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Fail(ErrorCode::kOutOfMemory, Format("no addresses for a model of {}: {}",
                                                HumanBytes(file_bytes), std::strerror(errno)));
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(data), file_bytes);
  std::memcpy(bytes.data(), header.data(), header.size());
  return std::unique_ptr<Generator>(new Generator(bytes, std::move(source)));
}

GgufFile::Generator::~Generator() { ::munmap(bytes_.data(), bytes_.size()); }

Status GgufFile::Generator::Fetch(std::size_t index, const GgufTensor& tensor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto known = fetched_.find(index); known != fetched_.end()) {
    ++known->second;
    return {};
  }
  const std::span<std::byte> place = bytes_.subspan(tensor.offset, tensor.bytes);
  std::size_t filled = 0;
  const auto sink = [&](std::span<const std::byte> piece) -> Status {
    if (piece.size() <= place.size() - filled) {
      std::memcpy(place.data() + filled, piece.data(), piece.size());
      filled += piece.size();
      return {};
    }
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("tensor {}: more than the {} bytes of its shape", tensor.name, tensor.bytes));
  };
  if (Status made = source_(index, sink); !made) return made;
  if (filled != place.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("tensor {} was given {} bytes; its shape takes {}", tensor.name, filled,
                       tensor.bytes));
  }
  fetched_.emplace(index, 1);
  return {};
}

void GgufFile::Generator::Drop(std::size_t index, const GgufTensor& tensor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = fetched_.find(index);
  if (known == fetched_.end() || --known->second > 0) return;
  fetched_.erase(known);
  // Whole pages only: others hold neighbours too.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = (tensor.offset + page - 1) / page * page;
  const std::uint64_t end = (tensor.offset + tensor.bytes) / page * page;
  // What the system keeps is overwritten when the tensor is fetched again.
  if (begin < end) static_cast<void>(::madvise(bytes_.data() + begin, end - begin, MADV_DONTNEED));
}

}  // namespace tilewright
