#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/gguf.h"

/// Helpers for tests and the fuzzer only.

namespace tilewright::test {

using Bytes = std::vector<std::byte>;

/// Puts a GGUF file together byte by byte, with nothing checked, so that broken ones can be made.
class RawGguf {
 public:
  template <class T>
  RawGguf& Put(T value) {
    const auto* data = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), data, data + sizeof(T));
    return *this;
  }
  RawGguf& Text(std::string_view text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    bytes.insert(bytes.end(), data, data + text.size());
    return *this;
  }
  RawGguf& String(std::string_view text) { return Put<std::uint64_t>(text.size()).Text(text); }
  RawGguf& Header(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
    return Text("GGUF").Put(version).Put(tensors).Put(entries);
  }
  RawGguf& Key(std::string_view key, GgufType type) {
    return String(key).Put(static_cast<std::uint32_t>(type));
  }
  RawGguf& Array(GgufType element, std::uint64_t count) {
    return Put(static_cast<std::uint32_t>(element)).Put(count);
  }
  RawGguf& U32(std::string_view key, std::uint32_t value) {
    return Key(key, GgufType::kU32).Put(value);
  }
  RawGguf& Tensor(std::string_view name, std::vector<std::int64_t> shape, std::uint32_t type,
                  std::uint64_t offset) {
    String(name).Put(static_cast<std::uint32_t>(shape.size()));
    for (const std::int64_t extent : shape) Put(extent);
    return Put(type).Put(offset);
  }
  /// Pads to `alignment` and adds `count` bytes of data.
  RawGguf& Data(std::size_t count, std::size_t alignment = 32) {
    while (bytes.size() % alignment != 0) Put<std::uint8_t>(0);
    for (std::size_t i = 0; i < count; ++i) Put(static_cast<std::uint8_t>(i));
    return *this;
  }
  Result<GgufFile> Parse() const { return GgufFile::Parse(bytes, "test.gguf"); }

  Bytes bytes;
};

/// Reads everything that a file offers, through every accessor; returns a sum so that nothing is
/// optimised away.
inline std::uint64_t ReadEverything(const GgufFile& file) {
  std::uint64_t sum = file.tensor_bytes() + file.alignment() + file.version();
  const auto visit = [&sum](const GgufValue& value, const auto& self) -> void {
    sum += value.TypeText().size() + value.Signed().value_or(1) + value.Unsigned().value_or(2);
    sum += value.Float().has_value() + value.Bool().value_or(false) +
           value.String().value_or("abc").size();
    if (const auto text = value.String()) {
      for (const char c : *text) sum += static_cast<unsigned char>(c);
    }
    for (const GgufValue& element : value.Elements()) self(element, self);
  };
  for (const GgufEntry& entry : file.entries()) {
    visit(entry.value, visit);
    sum += file.Find(entry.key) == &entry.value;
    sum += file.U32(entry.key).has_value() + file.U64(entry.key).has_value() +
           file.I32(entry.key).has_value();
    sum += file.I64(entry.key).has_value() + file.F32(entry.key).has_value() +
           file.Bool(entry.key).has_value();
    sum += file.String(entry.key).has_value() + file.U32s(entry.key).has_value() +
           file.I32s(entry.key).has_value();
    sum += file.F32s(entry.key).has_value();
    if (const auto strings = file.Strings(entry.key)) {
      for (const std::string_view text : *strings)
        sum += text.empty() ? 0 : static_cast<unsigned char>(text.back());
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    sum += file.FindTensor(tensor.name) == &tensor;
    for (const std::byte byte : file.Bytes(tensor)) sum += std::to_integer<unsigned>(byte);
    sum += file.View(tensor).has_value();
    file.Release(tensor);
    file.WillNeed(tensor);
  }
  return sum + file.Validate().has_value();
}

/// A small file with every kind of value and several tensor types: what the damage tests start
/// from.
inline Bytes SampleFile() {
  RawGguf raw;
  raw.Header(4, 17);
  raw.Key("general.architecture", GgufType::kString).String("llama");
  raw.Key("t.u8", GgufType::kU8).Put<std::uint8_t>(200);
  raw.Key("t.i8", GgufType::kI8).Put<std::int8_t>(-100);
  raw.Key("t.u16", GgufType::kU16).Put<std::uint16_t>(60000);
  raw.Key("t.i16", GgufType::kI16).Put<std::int16_t>(-30000);
  raw.U32("t.u32", 4000000000u);
  raw.Key("t.i32", GgufType::kI32).Put<std::int32_t>(-2000000000);
  raw.Key("t.u64", GgufType::kU64).Put<std::uint64_t>(1ull << 63);
  raw.Key("t.i64", GgufType::kI64).Put<std::int64_t>(-(1ll << 62));
  raw.Key("t.f32", GgufType::kF32).Put(1.5f);
  raw.Key("t.f64", GgufType::kF64).Put(2.5);
  raw.Key("t.bool", GgufType::kBool).Put<std::uint8_t>(1);
  raw.Key("t.ints", GgufType::kArray).Array(GgufType::kI32, 3).Put(1).Put(-2).Put(3);
  raw.Key("t.floats", GgufType::kArray).Array(GgufType::kF32, 2).Put(0.5f).Put(-0.25f);
  raw.Key("t.words", GgufType::kArray)
      .Array(GgufType::kString, 3)
      .String("one")
      .String("")
      .String("three");
  raw.Key("t.nested", GgufType::kArray).Array(GgufType::kArray, 2);
  raw.Array(GgufType::kU8, 2).Put<std::uint8_t>(7).Put<std::uint8_t>(8);
  raw.Array(GgufType::kArray, 1).Array(GgufType::kString, 1).String("deep");
  raw.Key("t.bools", GgufType::kArray)
      .Array(GgufType::kBool, 2)
      .Put<std::uint8_t>(0)
      .Put<std::uint8_t>(1);
  raw.Tensor("norm", {8}, 0, 0);          // f32, 32 bytes
  raw.Tensor("weight", {64, 2}, 2, 32);   // q4_0, 72 bytes
  raw.Tensor("half", {3, 2, 2}, 1, 128);  // f16, 24 bytes
  raw.Tensor("later", {64}, 42, 160);     // q2_0, 18 bytes: known by name only
  raw.Data(178);
  return raw.bytes;
}

/// A folder that goes away with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tilewright-gguf-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Names of what is in it.
  std::vector<std::string> List() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    return names;
  }

 private:
  std::string path_;
};

inline void WriteBytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace tilewright::test
