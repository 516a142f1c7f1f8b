#include <limits>

#include "model/gguf/gguf_parse.h"
#include "tilewright/gguf.h"

namespace tilewright {

using gguf::FixedSize;
using gguf::LoadAs;

namespace {

// The packed size of one element of a variable-size type, which starts at `data`. The bytes were
// checked when the file was parsed.
std::size_t VariableSize(GgufType type, const std::byte* data) {
  if (type == GgufType::kString) return sizeof(std::uint64_t) + LoadAs<std::uint64_t>(data);
  const auto element = static_cast<GgufType>(LoadAs<std::uint32_t>(data));
  const auto count = LoadAs<std::uint64_t>(data + sizeof(std::uint32_t));
  std::size_t size = sizeof(std::uint32_t) + sizeof(std::uint64_t);
  if (const std::size_t fixed = FixedSize(element); fixed != 0) return size + count * fixed;
  for (std::uint64_t i = 0; i < count; ++i) size += VariableSize(element, data + size);
  return size;
}

}  // namespace

std::string GgufValue::TypeText() const {
  if (type_ != GgufType::kArray) return std::string(GgufTypeName(type_));
  return "array of " + std::string(GgufTypeName(element_type_));
}

std::optional<std::int64_t> GgufValue::Signed() const {
  const std::byte* data = bytes_.data();
  switch (type_) {
    case GgufType::kI8:
      return LoadAs<std::int8_t>(data);
    case GgufType::kI16:
      return LoadAs<std::int16_t>(data);
    case GgufType::kI32:
      return LoadAs<std::int32_t>(data);
    case GgufType::kI64:
      return LoadAs<std::int64_t>(data);
    case GgufType::kU8:
      return LoadAs<std::uint8_t>(data);
    case GgufType::kU16:
      return LoadAs<std::uint16_t>(data);
    case GgufType::kU32:
      return LoadAs<std::uint32_t>(data);
    case GgufType::kU64: {
      const auto value = LoadAs<std::uint64_t>(data);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    case GgufType::kF32:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
    case GgufType::kF64:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> GgufValue::Unsigned() const {
  if (type_ == GgufType::kU64) return LoadAs<std::uint64_t>(bytes_.data());
  const auto value = Signed();
  if (!value || *value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::optional<double> GgufValue::Float() const {
  if (type_ == GgufType::kF32) return LoadAs<float>(bytes_.data());
  if (type_ == GgufType::kF64) return LoadAs<double>(bytes_.data());
  return std::nullopt;
}

std::optional<bool> GgufValue::Bool() const {
  if (type_ != GgufType::kBool) return std::nullopt;
  return std::to_integer<int>(bytes_[0]) != 0;
}

std::optional<std::string_view> GgufValue::String() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
}

std::vector<GgufValue> GgufValue::Elements() const {
  std::vector<GgufValue> elements;
  if (type_ != GgufType::kArray) return elements;
  elements.reserve(count_);
  const std::byte* data = bytes_.data();
  const std::size_t fixed = FixedSize(element_type_);
  for (std::uint64_t i = 0; i < count_; ++i) {
    const std::size_t size = fixed != 0 ? fixed : VariableSize(element_type_, data);
    if (element_type_ == GgufType::kString) {
      constexpr std::size_t kLength = sizeof(std::uint64_t);
      elements.emplace_back(element_type_, element_type_, 1,
                            std::span(data + kLength, size - kLength));
    } else if (element_type_ == GgufType::kArray) {
      constexpr std::size_t kHeader = sizeof(std::uint32_t) + sizeof(std::uint64_t);
      elements.emplace_back(element_type_, static_cast<GgufType>(LoadAs<std::uint32_t>(data)),
                            LoadAs<std::uint64_t>(data + sizeof(std::uint32_t)),
                            std::span(data + kHeader, size - kHeader));
    } else {
      elements.emplace_back(element_type_, element_type_, 1, std::span(data, size));
    }
    data += size;
  }
  return elements;
}

}  // namespace tilewright
