#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "tilewright/gguf.h"

namespace tilewright {

/// The address space of a file that exists nowhere else: its header is there, its tensors are made
/// when they are fetched and dropped when they are released. Memory is used for what is there.
class GgufFile::Generator {
 public:
  static Result<std::unique_ptr<Generator>> Create(std::span<const std::byte> header,
                                                   std::uint64_t file_bytes,
                                                   GgufWriter::Source source);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Any thread; each tensor is made by one, and stays until it was dropped as often as fetched.
  Status Fetch(std::size_t index, const GgufTensor& tensor);
  void Drop(std::size_t index, const GgufTensor& tensor);

 private:
  Generator(std::span<std::byte> bytes, GgufWriter::Source source)
      : bytes_(bytes), source_(std::move(source)) {}

  std::span<std::byte> bytes_;
  GgufWriter::Source source_;
  std::mutex mutex_;
  std::map<std::size_t, int> fetched_;  // by index of the tensor: how often
};

}  // namespace tilewright
