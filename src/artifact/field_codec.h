#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright {

/// A sequence of tagged, typed, length-prefixed fields, as in key records and the metadata of entry
/// files (docs/artifact_key.md, "Fields"). A field is
///   u16 tag | u8 type | u32 length | length bytes of value      (integers little endian)
/// so that values are delimited, and a reader can skip a field whose tag it does not know.
enum class FieldType : std::uint8_t {
  kU32 = 1,     ///< 4 bytes
  kI32 = 2,     ///< 4 bytes, two's complement
  kU64 = 3,     ///< 8 bytes
  kText = 4,    ///< any bytes
  kDigest = 5,  ///< 32 bytes
};

inline constexpr std::size_t kFieldHeaderBytes = 7;

inline void AppendLittleEndian(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}
/// Reads `bytes` (at most 8) at `data`, which must be readable.
inline std::uint64_t LoadLittleEndian(const char* data, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(data[i])) << (8 * i);
  }
  return value;
}

/// In files, this number of spill bytes means that the compiler did not report it.
inline constexpr std::uint32_t kUnknownBytes = 0xffffffff;
inline std::uint32_t EncodeKnown(std::optional<std::uint32_t> bytes) {
  return bytes.value_or(kUnknownBytes);
}
inline std::optional<std::uint32_t> DecodeKnown(std::uint32_t bytes) {
  return bytes == kUnknownBytes ? std::nullopt : std::optional(bytes);
}

class FieldWriter {
 public:
  explicit FieldWriter(std::string& out) : out_(out) {}
  void U32(std::uint16_t tag, std::uint32_t value) { Integer(tag, FieldType::kU32, value, 4); }
  void I32(std::uint16_t tag, std::int32_t value) {
    Integer(tag, FieldType::kI32, static_cast<std::uint32_t>(value), 4);
  }
  void U64(std::uint16_t tag, std::uint64_t value) { Integer(tag, FieldType::kU64, value, 8); }
  /// At most 4 GiB; callers' own limits are far lower.
  void Text(std::uint16_t tag, std::string_view value) { Bytes(tag, FieldType::kText, value); }
  template <class Digest>
  void Digest32(std::uint16_t tag, const Digest& digest) {
    static_assert(sizeof(digest) == 32);
    Bytes(tag, FieldType::kDigest,
          std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
  }

 private:
  void Header(std::uint16_t tag, FieldType type, std::size_t length) {
    AppendLittleEndian(out_, tag, 2);
    AppendLittleEndian(out_, static_cast<std::uint8_t>(type), 1);
    AppendLittleEndian(out_, length, 4);
  }
  void Integer(std::uint16_t tag, FieldType type, std::uint64_t value, std::size_t bytes) {
    Header(tag, type, bytes);
    AppendLittleEndian(out_, value, bytes);
  }
  void Bytes(std::uint16_t tag, FieldType type, std::string_view value) {
    Header(tag, type, value.size());
    out_ += value;
  }
  std::string& out_;
};

struct Field {
  std::uint16_t tag = 0;
  FieldType type = FieldType::kText;
  std::string_view value;
};

/// Iterates over the fields of `bytes`; never reads outside them, whatever they contain.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : left_(bytes) {}
  bool AtEnd() const { return left_.empty(); }
  /// nullopt if no complete field of a known type with a valid length follows.
  std::optional<Field> Next() {
    if (left_.size() < kFieldHeaderBytes) return std::nullopt;
    Field field;
    field.tag = static_cast<std::uint16_t>(LoadLittleEndian(left_.data(), 2));
    const auto type = LoadLittleEndian(left_.data() + 2, 1);
    const std::uint64_t length = LoadLittleEndian(left_.data() + 3, 4);
    if (type < 1 || type > 5 || length > left_.size() - kFieldHeaderBytes) return std::nullopt;
    field.type = static_cast<FieldType>(type);
    static constexpr std::uint64_t kLengths[] = {0, 4, 4, 8, 0, 32};
    if (field.type != FieldType::kText && length != kLengths[type]) return std::nullopt;
    field.value = left_.substr(kFieldHeaderBytes, length);
    left_.remove_prefix(kFieldHeaderBytes + length);
    return field;
  }

 private:
  std::string_view left_;
};

}  // namespace tilewright
