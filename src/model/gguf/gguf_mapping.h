#pragma once

#include <ctime>
#include <memory>
#include <span>
#include <string>

#include "tilewright/gguf.h"

namespace tilewright {

/// Owns the descriptor and the mapping of an opened file, or a copy of a file that the system does not
/// map. The descriptor stays open, so that CheckUnchanged examines this file even if another has taken
/// its name.
class GgufFile::Mapping {
 public:
  static Result<std::unique_ptr<Mapping>> Open(const std::string& path);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  Status CheckUnchanged(const std::string& path) const;
  /// madvise over the whole pages around [offset, offset + size). Rounding outward is harmless: the
  /// mapping is private and never written, so a dropped page is read again unchanged. Does nothing for a
  /// copy, of which nothing could be read again.
  void Advise(std::uint64_t offset, std::uint64_t size, int advice) const;

 private:
  explicit Mapping(int fd) : fd_(fd) {}

  int fd_;
  std::span<const std::byte> bytes_;
  bool copied_ = false;
  timespec modified_{};
};

/// A file of the model: `mapping` is empty for bytes that somebody else keeps.
struct GgufFile::Part {
  std::string path;
  std::unique_ptr<Mapping> mapping;
  std::span<const std::byte> bytes;
};

}  // namespace tilewright
