#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "core/formats/formats.h"
#include "core/text.h"
#include "model/gguf/gguf_generator.h"
#include "model/gguf/gguf_mapping.h"
#include "model/gguf/gguf_parse.h"
#include "tilewright/gguf.h"

namespace tilewright {

using gguf::Quoted;

GgufFile::GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

std::uint64_t GgufFile::file_bytes() const {
  std::uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.bytes.size();
  return sum;
}

std::uint64_t GgufFile::tensor_bytes() const {
  std::uint64_t sum = 0;
  for (const GgufTensor& tensor : tensors_) sum += tensor.bytes;
  return sum;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found =
      std::lower_bound(entry_order_.begin(), entry_order_.end(), key,
                       [this](std::uint32_t i, std::string_view k) { return entries_[i].key < k; });
  if (found == entry_order_.end() || entries_[*found].key != key) return nullptr;
  return &entries_[*found].value;
}

Result<GgufValue> GgufFile::Need(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr)
    return Fail(ErrorCode::kNotFound, Format("{}: key {} is missing", path_, Quoted(key)));
  return *value;
}

Error GgufFile::TypeError(std::string_view key, const GgufValue& value,
                          std::string_view wanted) const {
  std::string found = value.TypeText();
  if (const auto number = value.Signed()) found += Format(" of value {}", *number);
  if (const auto number = value.Unsigned(); number && !value.Signed())
    found += Format(" of value {}", *number);
  return Error{ErrorCode::kCorrupt,
               Format("{}: key {} must be {}, but is {}", path_, Quoted(key), wanted, found)};
}

namespace {

template <class T>
std::optional<T> IntegerAs(const GgufValue& value) {
  if constexpr (std::is_signed_v<T>) {
    const auto number = value.Signed();
    if (!number || !std::in_range<T>(*number)) return std::nullopt;
    return static_cast<T>(*number);
  } else {
    const auto number = value.Unsigned();
    if (!number || !std::in_range<T>(*number)) return std::nullopt;
    return static_cast<T>(*number);
  }
}

template <class T>
constexpr std::string_view IntegerName() {
  if constexpr (sizeof(T) == 8) return std::is_signed_v<T> ? "i64" : "u64";
  return std::is_signed_v<T> ? "i32" : "u32";
}

// A double that a float can hold; a finite value must stay finite.
std::optional<float> FloatAs(const GgufValue& value) {
  const auto number = value.Float();
  if (!number) return std::nullopt;
  if (std::isfinite(*number) && std::fabs(*number) > std::numeric_limits<float>::max())
    return std::nullopt;
  return static_cast<float>(*number);
}

/// ", q4_0, q4_1, ..."
std::string ListOfFormats() {
  std::string list;
  for (const BlockFormat& format : kFormats) list.append(", ").append(format.name);
  return list;
}

}  // namespace

template <class T>
Result<T> GgufFile::Integer(std::string_view key) const {
  auto value = Need(key);
  if (!value) return Fail(value.error());
  if (const auto number = IntegerAs<T>(*value)) return *number;
  return Fail(TypeError(key, *value, IntegerName<T>()));
}

template <class T>
Result<std::vector<T>> GgufFile::Integers(std::string_view key) const {
  auto value = Need(key);
  if (!value) return Fail(value.error());
  const std::string wanted = Format("array of {}", IntegerName<T>());
  if (value->type() != GgufType::kArray) return Fail(TypeError(key, *value, wanted));
  std::vector<T> numbers;
  numbers.reserve(value->count());
  const std::size_t size = gguf::FixedSize(value->element_type());
  for (std::uint64_t i = 0; i < value->count(); ++i) {
    std::optional<T> number;
    if (size != 0) {
      const auto type = value->element_type();
      number = IntegerAs<T>(GgufValue(type, type, 1, value->bytes().subspan(i * size, size)));
    }
    if (!number) return Fail(TypeError(key, *value, wanted));
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::uint32_t> GgufFile::U32(std::string_view key) const {
  return Integer<std::uint32_t>(key);
}
Result<std::uint64_t> GgufFile::U64(std::string_view key) const {
  return Integer<std::uint64_t>(key);
}
Result<std::int32_t> GgufFile::I32(std::string_view key) const {
  return Integer<std::int32_t>(key);
}
Result<std::int64_t> GgufFile::I64(std::string_view key) const {
  return Integer<std::int64_t>(key);
}

Result<float> GgufFile::F32(std::string_view key) const {
  auto value = Need(key);
  if (!value) return Fail(value.error());
  if (const auto number = FloatAs(*value)) return *number;
  return Fail(TypeError(key, *value, "f32"));
}

Result<bool> GgufFile::Bool(std::string_view key) const {
  auto value = Need(key);
  if (!value) return Fail(value.error());
  if (const auto flag = value->Bool()) return *flag;
  return Fail(TypeError(key, *value, "bool"));
}

Result<std::string_view> GgufFile::String(std::string_view key) const {
  auto value = Need(key);
  if (!value) return Fail(value.error());
  if (const auto text = value->String()) return *text;
  return Fail(TypeError(key, *value, "string"));
}

Result<std::uint32_t> GgufFile::U32(std::string_view key, std::uint32_t absent) const {
  if (!Has(key)) return absent;
  return U32(key);
}
Result<float> GgufFile::F32(std::string_view key, float absent) const {
  if (!Has(key)) return absent;
  return F32(key);
}
Result<bool> GgufFile::Bool(std::string_view key, bool absent) const {
  if (!Has(key)) return absent;
  return Bool(key);
}
Result<std::string_view> GgufFile::String(std::string_view key, std::string_view absent) const {
  if (!Has(key)) return absent;
  return String(key);
}

Result<std::vector<std::string_view>> GgufFile::Strings(std::string_view key) const {
  auto value = Need(key);
  if (!value) return Fail(value.error());
  if (value->type() != GgufType::kArray || value->element_type() != GgufType::kString) {
    return Fail(TypeError(key, *value, "array of string"));
  }
  std::vector<std::string_view> strings;
  strings.reserve(value->count());
  const std::byte* data = value->bytes().data();
  for (std::uint64_t i = 0; i < value->count(); ++i) {
    const auto length = gguf::LoadAs<std::uint64_t>(data);
    data += sizeof(std::uint64_t);
    strings.emplace_back(reinterpret_cast<const char*>(data), length);
    data += length;
  }
  return strings;
}

Result<std::vector<std::uint32_t>> GgufFile::U32s(std::string_view key) const {
  return Integers<std::uint32_t>(key);
}
Result<std::vector<std::int32_t>> GgufFile::I32s(std::string_view key) const {
  return Integers<std::int32_t>(key);
}

Result<std::vector<float>> GgufFile::F32s(std::string_view key) const {
  auto value = Need(key);
  if (!value) return Fail(value.error());
  const GgufType type = value->element_type();
  if (value->type() != GgufType::kArray || (type != GgufType::kF32 && type != GgufType::kF64)) {
    return Fail(TypeError(key, *value, "array of f32"));
  }
  std::vector<float> numbers;
  numbers.reserve(value->count());
  const std::size_t size = gguf::FixedSize(type);
  for (std::uint64_t i = 0; i < value->count(); ++i) {
    const auto number = FloatAs(GgufValue(type, type, 1, value->bytes().subspan(i * size, size)));
    if (!number) return Fail(TypeError(key, *value, "array of f32"));
    numbers.push_back(*number);
  }
  return numbers;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = std::lower_bound(
      tensor_order_.begin(), tensor_order_.end(), name,
      [this](std::uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (found == tensor_order_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

Result<const GgufTensor*> GgufFile::Tensor(std::string_view name) const {
  const GgufTensor* tensor = FindTensor(name);
  if (tensor == nullptr) {
    return Fail(ErrorCode::kNotFound, Format("{}: tensor {} is missing", path_, Quoted(name)));
  }
  return tensor;
}

std::span<const std::byte> GgufFile::BytesOfPart(const GgufTensor& tensor) const {
  return parts_[tensor.part].bytes;
}

std::span<const std::byte> GgufFile::Bytes(const GgufTensor& tensor) const {
  return BytesOfPart(tensor).subspan(tensor.offset, tensor.bytes);
}

Error GgufFile::Unsupported(const GgufTensor& tensor) const {
  const GgmlTypeInfo* type = FindGgmlType(tensor.type_id);
  std::string text;
  if (type == nullptr) {
    text = Format("unknown type number {}; convert the model to f32, f16, bf16{}", tensor.type_id,
                  ListOfFormats());
  } else if (type->block_elements == 0) {
    text =
        Format("type {}, which was removed from the format; convert the model again", type->name);
  } else {
    text = Format("type {}, which is not supported; convert the model to f32, f16, bf16{}",
                  type->name, ListOfFormats());
  }
  return Error{ErrorCode::kUnsupported,
               Format("{}: tensor {} has {}", path_, Quoted(tensor.name), text)};
}

Result<TensorView> GgufFile::View(const GgufTensor& tensor) const {
  if (tensor.dtype == DataType::kNone) return Fail(Unsupported(tensor));
  return Contiguous(const_cast<std::byte*>(BytesOfPart(tensor).data()) + tensor.offset,
                    tensor.dtype, tensor.shape);
}

Result<TensorView> GgufFile::View(std::string_view name) const {
  auto tensor = Tensor(name);
  if (!tensor) return Fail(tensor.error());
  return View(**tensor);
}

Status GgufFile::Validate() const {
  const GgufTensor* first = nullptr;
  std::size_t more = 0;
  for (const GgufTensor& tensor : tensors_) {
    if (tensor.dtype != DataType::kNone) continue;
    if (first == nullptr) {
      first = &tensor;
    } else {
      ++more;
    }
  }
  if (first == nullptr) return {};
  Error error = Unsupported(*first);
  if (more > 0) error.message += Format(" (and {} more tensors with such types)", more);
  return Fail(std::move(error));
}

Status GgufFile::CheckUnchanged() const {
  for (const Part& part : parts_) {
    if (!part.mapping) continue;
    if (Status status = part.mapping->CheckUnchanged(part.path); !status) return status;
  }
  return {};
}

void GgufFile::Advise(const GgufTensor& tensor, int advice) const {
  const Part& part = parts_[tensor.part];
  if (part.mapping) part.mapping->Advise(tensor.offset, tensor.bytes, advice);
}

namespace {

/// Which tensor of a file one is, or is a part of: the loader takes some apart.
std::optional<std::size_t> IndexOf(std::span<const GgufTensor> tensors, const GgufTensor& part) {
  const auto holds = [&](const GgufTensor& whole) {
    return part.part == whole.part && part.offset >= whole.offset &&
           part.offset + part.bytes <= whole.offset + whole.bytes;
  };
  const auto found = std::ranges::find_if(tensors, holds);
  if (found == tensors.end()) return std::nullopt;
  return static_cast<std::size_t>(found - tensors.begin());
}

}  // namespace

void GgufFile::Release(const GgufTensor& tensor) const {
  Advise(tensor, MADV_DONTNEED);
  if (!generator_) return;
  if (const auto index = IndexOf(tensors_, tensor)) generator_->Drop(*index, tensors_[*index]);
}
void GgufFile::WillNeed(const GgufTensor& tensor) const { Advise(tensor, MADV_WILLNEED); }

void GgufFile::ReleaseAll() const {
  for (const Part& part : parts_) {
    if (part.mapping) part.mapping->Advise(0, part.bytes.size(), MADV_DONTNEED);
  }
}

Status GgufFile::Fetch(const GgufTensor& tensor) const {
  if (!generator_) return {};
  const auto index = IndexOf(tensors_, tensor);
  if (!index) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("tensor {} is none of the file, nor a part of one", tensor.name));
  }
  return generator_->Fetch(*index, tensors_[*index]);
}

}  // namespace tilewright
