#include <algorithm>
#include <cstring>
#include <utility>

#include "core/atomic_file.h"
#include "core/text.h"
#include "model/gguf/gguf_generator.h"
#include "model/gguf/gguf_mapping.h"
#include "model/gguf/gguf_parse.h"
#include "tilewright/gguf.h"

namespace tilewright {

using gguf::kDefaultAlignment;
using gguf::Quoted;

namespace {

std::uint64_t Padded(std::uint64_t bytes) {
  return (bytes + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment;
}

void Append(std::vector<std::byte>& out, const void* data, std::size_t size) {
  const std::size_t at = out.size();
  out.resize(at + size);
  if (size > 0) std::memcpy(out.data() + at, data, size);
}
template <class T>
void Append(std::vector<std::byte>& out, T value) {
  Append(out, &value, sizeof(value));
}
void AppendString(std::vector<std::byte>& out, std::string_view text) {
  Append(out, static_cast<std::uint64_t>(text.size()));
  Append(out, text.data(), text.size());
}

std::uint64_t TensorBytes(const GgufTensorSpec& spec) {
  const GgmlTypeInfo& type = *FindGgmlType(spec.dtype);
  std::uint64_t elements = 1;
  for (const std::int64_t extent : spec.shape) elements *= static_cast<std::uint64_t>(extent);
  return elements / static_cast<std::uint64_t>(type.block_elements) *
         static_cast<std::uint64_t>(type.block_bytes);
}

std::uint64_t RecordBytes(const GgufTensorSpec& spec) {
  return 8 + spec.name.size() + 4 + 8 * static_cast<std::uint64_t>(spec.dims) + 4 + 8;
}

constexpr std::uint64_t kHeaderBytes = 4 + 4 + 8 + 8;

}  // namespace

void GgufWriter::Key(std::string_view key, GgufType type) {
  if (first_error_.empty()) {
    if (key.empty() || key.size() > gguf::kMaxKeyBytes) {
      first_error_ = Format("metadata key {} is {} bytes long; 1 to {} are allowed", Quoted(key),
                            key.size(), gguf::kMaxKeyBytes);
    } else if (key == gguf::kAlignmentKey) {
      first_error_ = Format("metadata key {} is fixed: this writer aligns to {}", Quoted(key),
                            kDefaultAlignment);
    } else if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) {
      first_error_ = Format("metadata key {} is set twice", Quoted(key));
    }
  }
  keys_.emplace_back(key);
  ++entries_;
  AppendString(metadata_, key);
  Append(metadata_, static_cast<std::uint32_t>(type));
}

void GgufWriter::Array(std::string_view key, GgufType element, std::uint64_t count) {
  Key(key, GgufType::kArray);
  Append(metadata_, static_cast<std::uint32_t>(element));
  Append(metadata_, count);
}

void GgufWriter::SetU32(std::string_view key, std::uint32_t value) {
  Key(key, GgufType::kU32);
  Append(metadata_, value);
}
void GgufWriter::SetU64(std::string_view key, std::uint64_t value) {
  Key(key, GgufType::kU64);
  Append(metadata_, value);
}
void GgufWriter::SetI32(std::string_view key, std::int32_t value) {
  Key(key, GgufType::kI32);
  Append(metadata_, value);
}
void GgufWriter::SetF32(std::string_view key, float value) {
  Key(key, GgufType::kF32);
  Append(metadata_, value);
}
void GgufWriter::SetBool(std::string_view key, bool value) {
  Key(key, GgufType::kBool);
  Append(metadata_, static_cast<std::uint8_t>(value ? 1 : 0));
}
void GgufWriter::SetString(std::string_view key, std::string_view value) {
  Key(key, GgufType::kString);
  AppendString(metadata_, value);
}
void GgufWriter::SetStrings(std::string_view key, std::span<const std::string> values) {
  Array(key, GgufType::kString, values.size());
  for (const std::string& value : values) AppendString(metadata_, value);
}
void GgufWriter::SetI32s(std::string_view key, std::span<const std::int32_t> values) {
  Array(key, GgufType::kI32, values.size());
  Append(metadata_, values.data(), values.size_bytes());
}
void GgufWriter::SetF32s(std::string_view key, std::span<const float> values) {
  Array(key, GgufType::kF32, values.size());
  Append(metadata_, values.data(), values.size_bytes());
}

void GgufWriter::SetValue(std::string_view key, const GgufValue& value) {
  if (value.type() == GgufType::kArray) {
    Array(key, value.element_type(), value.count());
  } else {
    Key(key, value.type());
    if (value.type() == GgufType::kString)
      Append(metadata_, static_cast<std::uint64_t>(value.bytes().size()));
  }
  Append(metadata_, value.bytes().data(), value.bytes().size());
}

Status GgufWriter::AddTensor(GgufTensorSpec spec) {
  const std::string name = Quoted(spec.name);
  if (spec.name.empty() || spec.name.size() > 63) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("tensor name {} is {} bytes long; 1 to 63 are allowed", name, spec.name.size()));
  }
  if (std::any_of(tensors_.begin(), tensors_.end(),
                  [&](const auto& t) { return t.name == spec.name; })) {
    return Fail(ErrorCode::kInvalidArgument, Format("tensor {} is added twice", name));
  }
  const GgmlTypeInfo* type = FindGgmlType(spec.dtype);
  if (type == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("tensor {}: GGUF has no type {}", name, DataTypeName(spec.dtype)));
  }
  if (spec.dims < 1 || spec.dims > 4) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("tensor {}: {} dimensions; 1 to 4 are allowed", name, spec.dims));
  }
  std::int64_t elements = 8;  // the widest type has 8 bytes: bounds the bytes too
  for (int d = 0; d < 4; ++d) {
    const std::int64_t extent = spec.shape[d];
    if (extent < 1 || (d >= spec.dims && extent != 1) ||
        __builtin_mul_overflow(elements, extent, &elements)) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("tensor {}: dimension {} of {} is {}", name, d, spec.dims, extent));
    }
  }
  if (spec.shape[0] % type->block_elements != 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format(
            "tensor {}: dimension 0 is {}, not a multiple of the block of {} elements of type {}",
            name, spec.shape[0], type->block_elements, type->name));
  }
  tensors_.push_back(std::move(spec));
  return {};
}

std::uint64_t GgufWriter::file_bytes() const {
  std::uint64_t header = kHeaderBytes + metadata_.size();
  std::uint64_t data = 0;
  for (const GgufTensorSpec& spec : tensors_) {
    header += RecordBytes(spec);
    data += Padded(TensorBytes(spec));
  }
  return Padded(header) + data;
}

std::vector<std::byte> GgufWriter::Header() const {
  std::vector<std::byte> header;
  Append(header, "GGUF", 4);
  Append(header, gguf::kNewestVersion);
  Append(header, static_cast<std::uint64_t>(tensors_.size()));
  Append(header, entries_);
  Append(header, metadata_.data(), metadata_.size());
  std::uint64_t offset = 0;
  for (const GgufTensorSpec& spec : tensors_) {
    AppendString(header, spec.name);
    Append(header, static_cast<std::uint32_t>(spec.dims));
    for (int d = 0; d < spec.dims; ++d) Append(header, spec.shape[d]);
    Append(header, FindGgmlType(spec.dtype)->id);
    Append(header, offset);
    offset += Padded(TensorBytes(spec));
  }
  header.resize(Padded(header.size()));
  return header;
}

Status GgufWriter::Write(const std::string& path, const Source& source) const {
  if (!first_error_.empty())
    return Fail(ErrorCode::kInvalidArgument, Format("{}: {}", path, first_error_));

  Result<AtomicFile> file = AtomicFile::Create(path, AtomicFile::Special::kRefuse, file_bytes());
  if (!file) return Fail(file.error());
  if (auto status = file->Append(Header()); !status) return status;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::uint64_t wanted = TensorBytes(tensors_[i]);
    std::uint64_t written = 0;
    const Sink sink = [&](std::span<const std::byte> bytes) -> Status {
      written += bytes.size();
      if (written > wanted) return {};  // reported below, without filling the disk
      return file->Append(bytes);
    };
    if (auto status = source(i, sink); !status) return status;
    if (written != wanted) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("{}: tensor {} was given {} bytes; its shape takes {}", path,
                         Quoted(tensors_[i].name), written, wanted));
    }
    const std::byte zeros[kDefaultAlignment] = {};
    if (auto status = file->Append({zeros, Padded(wanted) - wanted}); !status) return status;
  }
  return file->Publish();
}

Result<GgufFile> GgufWriter::Generate(std::string name, Source source) const {
  if (!first_error_.empty())
    return Fail(ErrorCode::kInvalidArgument, Format("{}: {}", name, first_error_));
  auto generator = GgufFile::Generator::Create(Header(), file_bytes(), std::move(source));
  if (!generator) return Fail(generator.error());
  GgufFile file;
  file.path_ = name;
  file.generator_ = std::move(*generator);
  GgufFile::Part whole{
      .path = std::move(name), .mapping = nullptr, .bytes = file.generator_->bytes()};
  if (Status added = file.AddPart(std::move(whole)); !added) return Fail(added.error());
  return file;
}

}  // namespace tilewright
