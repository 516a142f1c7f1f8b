#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/gguf.h"

namespace tilewright::gguf {

inline constexpr std::uint32_t kNewestVersion = 3;
inline constexpr std::uint64_t kDefaultAlignment = 32;
inline constexpr std::uint64_t kMaxAlignment = 1u << 20;
inline constexpr std::size_t kMaxKeyBytes = 65535;  // the format's own limit
// The format says 64, but some writers exceed that.
inline constexpr std::size_t kMaxTensorNameBytes = 255;
inline constexpr int kMaxArrayDepth = 8;
inline constexpr std::string_view kAlignmentKey = "general.alignment";

/// Everything before the tensor data. Views point into the parsed bytes.
struct Contents {
  std::uint32_t version = 0;
  std::uint64_t alignment = kDefaultAlignment;
  std::vector<GgufEntry> entries;
  std::vector<GgufTensor> tensors;
  std::vector<std::uint32_t> entry_order;   // sorted by key, no two equal
  std::vector<std::uint32_t> tensor_order;  // sorted by name, no two equal
};

/// Parses and checks the whole structure of a file whose bytes are `bytes`. Messages do not name
/// the file. Pure.
Result<Contents> ParseContents(std::span<const std::byte> bytes);

/// Bytes of a value of a fixed-size type; 0 for strings and arrays.
std::size_t FixedSize(GgufType type);

/// `text` for a message: at most 80 bytes, control characters and bytes above 0x7e as \xNN, in
/// quotes.
std::string Quoted(std::string_view text);

/// The unaligned T at `data`.
template <class T>
T LoadAs(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

}  // namespace tilewright::gguf
