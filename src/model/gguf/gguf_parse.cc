#include "model/gguf/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>

#include "core/text.h"

namespace tilewright::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF files are read in place");

namespace {

// Smallest encodings, which bound every count by the number of bytes left.
constexpr std::uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // key length, one character, type, u8
// Name length, one character, dims, type, offset.
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;
constexpr std::uint64_t kArrayHeaderBytes = 4 + 8;
// Limit of entries and of tensors; the indices are 32 bits wide.
constexpr std::uint64_t kMaxRecords = 1u << 24;

template <class... Args>
tl::unexpected<Error> Corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...));
}

// Reads values from the front of the bytes, never past the end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }
  const std::byte* here() const { return bytes_.data() + position_; }

  template <class T>
  std::optional<T> Take() {
    if (left() < sizeof(T)) return std::nullopt;
    const T value = LoadAs<T>(here());
    position_ += sizeof(T);
    return value;
  }
  std::optional<std::span<const std::byte>> TakeBytes(std::uint64_t count) {
    if (count > left()) return std::nullopt;
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool IsKnown(std::uint32_t type) { return type <= static_cast<std::uint32_t>(GgufType::kF64); }

// A length-prefixed string. `what` names it in the message.
Result<std::span<const std::byte>> TakeString(Cursor& cursor, std::string_view what) {
  const std::uint64_t at = cursor.position();
  const auto length = cursor.Take<std::uint64_t>();
  if (!length)
    return Corrupt("the file ends at byte {}, inside the length of {}", at + cursor.left(), what);
  const auto bytes = cursor.TakeBytes(*length);
  if (!bytes) {
    return Corrupt("{} at byte {} has a length of {} bytes, but only {} are left", what, at,
                   *length, cursor.left());
  }
  return *bytes;
}

Status CheckBools(std::span<const std::byte> bytes, std::string_view what) {
  for (const std::byte byte : bytes) {
    if (std::to_integer<int>(byte) > 1) {
      return Corrupt("{} holds a bool of value {}; 0 and 1 are allowed", what,
                     std::to_integer<int>(byte));
    }
  }
  return {};
}

// Walks the elements of an array; they are `count` packed values of `element`. Strings and arrays
// are visited one by one, since their sizes vary.
Status SkipElements(Cursor& cursor, GgufType element, std::uint64_t count, int depth,
                    std::string_view what);

Status SkipArray(Cursor& cursor, int depth, std::string_view what) {
  if (depth > kMaxArrayDepth)
    return Corrupt("{} nests arrays more than {} deep", what, kMaxArrayDepth);
  const auto type = cursor.Take<std::uint32_t>();
  const auto count = cursor.Take<std::uint64_t>();
  if (!type || !count) return Corrupt("the file ends inside the array of {}", what);
  if (!IsKnown(*type)) return Corrupt("{} is an array of unknown type {}", what, *type);
  return SkipElements(cursor, static_cast<GgufType>(*type), *count, depth, what);
}

Status SkipElements(Cursor& cursor, GgufType element, std::uint64_t count, int depth,
                    std::string_view what) {
  const std::uint64_t fixed = FixedSize(element);
  const std::uint64_t smallest = fixed != 0                     ? fixed
                                 : element == GgufType::kString ? 8
                                                                : kArrayHeaderBytes;
  if (count > cursor.left() / smallest) {
    return Corrupt("{} claims {} elements of type {}, but only {} bytes of the file are left", what,
                   count, GgufTypeName(element), cursor.left());
  }
  if (fixed != 0) {
    const auto bytes = cursor.TakeBytes(count * fixed);
    return element == GgufType::kBool ? CheckBools(*bytes, what) : Status{};
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    if (element == GgufType::kString) {
      if (auto text = TakeString(cursor, what); !text) return Fail(text.error());
    } else if (auto status = SkipArray(cursor, depth + 1, what); !status) {
      return status;
    }
  }
  return {};
}

Result<GgufValue> TakeValue(Cursor& cursor, std::string_view key) {
  const std::string what = Format("key {}", Quoted(key));
  const auto type_id = cursor.Take<std::uint32_t>();
  if (!type_id) return Corrupt("the file ends before the type of {}", what);
  if (!IsKnown(*type_id)) return Corrupt("{} has unknown value type {}", what, *type_id);
  const auto type = static_cast<GgufType>(*type_id);

  if (type == GgufType::kString) {
    auto text = TakeString(cursor, what);
    if (!text) return Fail(text.error());
    return GgufValue(type, type, 1, *text);
  }
  if (type == GgufType::kArray) {
    const std::byte* start = cursor.here();
    const std::uint64_t begin = cursor.position();
    if (auto status = SkipArray(cursor, 1, what); !status) return Fail(status.error());
    const auto element = static_cast<GgufType>(LoadAs<std::uint32_t>(start));
    const auto count = LoadAs<std::uint64_t>(start + sizeof(std::uint32_t));
    return GgufValue(type, element, count,
                     {start + kArrayHeaderBytes, cursor.position() - begin - kArrayHeaderBytes});
  }
  const auto bytes = cursor.TakeBytes(FixedSize(type));
  if (!bytes) return Corrupt("the file ends inside the value of {}", what);
  if (type == GgufType::kBool) {
    if (auto status = CheckBools(*bytes, what); !status) return Fail(status.error());
  }
  return GgufValue(type, type, 1, *bytes);
}

struct Header {
  std::uint32_t version;
  std::uint64_t tensors;
  std::uint64_t entries;
};

Result<Header> TakeHeader(Cursor& cursor) {
  const auto magic_bytes = cursor.TakeBytes(4);
  if (!magic_bytes) return Corrupt("{} bytes are too few for a GGUF file", cursor.left());
  const std::string_view magic = Text(*magic_bytes);
  if (magic == "FUGG") {
    return Fail(ErrorCode::kUnsupported,
                "this is a big-endian GGUF file; only little-endian files are supported");
  }
  for (const std::string_view old : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (magic == old) {
      return Fail(ErrorCode::kUnsupported,
                  Format("this is a GGML file from before GGUF (magic {}); convert the model again",
                         Quoted(magic)));
    }
  }
  if (magic != "GGUF")
    return Corrupt("not a GGUF file: it starts with {} instead of \"GGUF\"", Quoted(magic));

  const auto version = cursor.Take<std::uint32_t>();
  if (!version) return Corrupt("the file ends before its version");
  if (*version != 0 && (*version & 0xffffu) == 0) {
    return Fail(ErrorCode::kUnsupported,
                "this is a big-endian GGUF file; only little-endian files are supported");
  }
  if (*version < 2 || *version > kNewestVersion) {
    return Fail(ErrorCode::kUnsupported,
                Format("GGUF version {} is not supported; supported are 2 and {}", *version,
                       kNewestVersion));
  }
  const auto tensors = cursor.Take<std::uint64_t>();
  const auto entries = cursor.Take<std::uint64_t>();
  if (!tensors || !entries) return Corrupt("the file ends inside its header");
  if (*entries > std::min(cursor.left() / kMinEntryBytes, kMaxRecords)) {
    return Corrupt(
        "the header claims {} metadata entries; the {} bytes that follow hold at most {}", *entries,
        cursor.left(), std::min(cursor.left() / kMinEntryBytes, kMaxRecords));
  }
  if (*tensors > std::min(cursor.left() / kMinTensorBytes, kMaxRecords)) {
    return Corrupt("the header claims {} tensors; the {} bytes that follow hold at most {}",
                   *tensors, cursor.left(), std::min(cursor.left() / kMinTensorBytes, kMaxRecords));
  }
  return Header{*version, *tensors, *entries};
}

// Indices of `count` items sorted by name(i); an error names the first duplicate.
template <class Name>
Result<std::vector<std::uint32_t>> UniqueOrder(std::size_t count, std::string_view what,
                                               Name name) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (name(order[i]) == name(order[i - 1]))
      return Corrupt("{} {} occurs twice", what, Quoted(name(order[i])));
  }
  return order;
}

Status TakeEntries(Cursor& cursor, std::uint64_t count, Contents& contents) {
  for (std::uint64_t i = 0; i < count; ++i) {
    auto key = TakeString(cursor, Format("metadata key {}", i));
    if (!key) return Fail(key.error());
    if (key->empty() || key->size() > kMaxKeyBytes) {
      return Corrupt("metadata key {} is {} bytes long; 1 to {} are allowed", i, key->size(),
                     kMaxKeyBytes);
    }
    auto value = TakeValue(cursor, Text(*key));
    if (!value) return Fail(value.error());
    contents.entries.push_back({Text(*key), *value});
  }
  const auto& entries = contents.entries;
  auto order = UniqueOrder(entries.size(), "key", [&](std::uint32_t i) { return entries[i].key; });
  if (!order) return Fail(order.error());
  contents.entry_order = std::move(*order);
  return {};
}

Status FindAlignment(Contents& contents) {
  for (const GgufEntry& entry : contents.entries) {
    if (entry.key != kAlignmentKey) continue;
    if (entry.value.type() != GgufType::kU32) {
      return Corrupt("key \"{}\" must be u32, but is {}", kAlignmentKey, entry.value.TypeText());
    }
    contents.alignment = *entry.value.Unsigned();
    if (contents.alignment < 8 || contents.alignment > kMaxAlignment ||
        !std::has_single_bit(contents.alignment)) {
      return Corrupt("key \"{}\" is {}: must be a power of two from 8 to {}", kAlignmentKey,
                     contents.alignment, kMaxAlignment);
    }
  }
  return {};
}

// Elements and bytes of a tensor whose shape and type are set. The size of an unknown type stays 0.
Status MeasureTensor(GgufTensor& tensor) {
  const std::string name = Quoted(tensor.name);
  std::int64_t elements = 1;
  for (int d = 0; d < tensor.dims; ++d) {
    if (tensor.shape[d] < 1) {
      return Corrupt("tensor {}: dimension {} is {}; must be at least 1", name, d, tensor.shape[d]);
    }
    if (__builtin_mul_overflow(elements, tensor.shape[d], &elements)) {
      return Corrupt("tensor {}: shape {} has more than 2^63 elements", name,
                     fmt::join(tensor.shape, " x "));
    }
  }
  const GgmlTypeInfo* type = FindGgmlType(tensor.type_id);
  if (type == nullptr || type->block_elements == 0) return {};
  tensor.dtype = type->dtype;
  if (tensor.shape[0] % type->block_elements != 0) {
    return Corrupt(
        "tensor {}: dimension 0 is {}, not a multiple of the block of {} elements of type {}", name,
        tensor.shape[0], type->block_elements, type->name);
  }
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(elements / type->block_elements),
                             static_cast<std::uint64_t>(type->block_bytes), &tensor.bytes)) {
    return Corrupt("tensor {}: shape {} of type {} takes more than 2^64 bytes", name,
                   fmt::join(tensor.shape, " x "), type->name);
  }
  return {};
}

// One record of the tensor list; `offset` still counts from the data section.
Result<GgufTensor> TakeTensor(Cursor& cursor, std::uint64_t index) {
  auto name = TakeString(cursor, Format("the name of tensor {}", index));
  if (!name) return Fail(name.error());
  if (name->empty() || name->size() > kMaxTensorNameBytes) {
    return Corrupt("the name of tensor {} is {} bytes long; 1 to {} are allowed", index,
                   name->size(), kMaxTensorNameBytes);
  }
  GgufTensor tensor;
  tensor.name = Text(*name);
  const auto dims = cursor.Take<std::uint32_t>();
  if (!dims) return Corrupt("the file ends inside the record of tensor {}", Quoted(tensor.name));
  if (*dims > tensor.shape.size()) {
    return Corrupt("tensor {} has {} dimensions; at most {} are allowed", Quoted(tensor.name),
                   *dims, tensor.shape.size());
  }
  tensor.dims = static_cast<int>(*dims);
  for (int d = 0; d < tensor.dims; ++d) {
    const auto extent = cursor.Take<std::int64_t>();
    if (!extent) return Corrupt("the file ends inside the shape of tensor {}", Quoted(tensor.name));
    tensor.shape[d] = *extent;
  }
  const auto type = cursor.Take<std::uint32_t>();
  const auto offset = cursor.Take<std::uint64_t>();
  if (!type || !offset)
    return Corrupt("the file ends inside the record of tensor {}", Quoted(tensor.name));
  tensor.type_id = *type;
  tensor.offset = *offset;
  if (auto status = MeasureTensor(tensor); !status) return Fail(status.error());
  return tensor;
}

// Turns the offsets into offsets in the file and checks them against the file and against each
// other.
Status PlaceTensors(std::uint64_t header_bytes, std::uint64_t file_bytes, Contents& contents) {
  const std::uint64_t alignment = contents.alignment;
  const std::uint64_t start = (header_bytes + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : contents.tensors) {
    if (tensor.offset % alignment != 0) {
      return Corrupt("tensor {}: offset {} is not a multiple of the alignment {}",
                     Quoted(tensor.name), tensor.offset, alignment);
    }
    std::uint64_t end = 0;
    if (__builtin_add_overflow(tensor.offset, start, &tensor.offset) ||
        __builtin_add_overflow(tensor.offset, tensor.bytes, &end) || end > file_bytes) {
      return Corrupt(
          "tensor {}: its {} bytes start at byte {} of the file, which has only {}: the file is "
          "truncated or damaged",
          Quoted(tensor.name), tensor.bytes, tensor.offset, file_bytes);
    }
  }
  const auto& tensors = contents.tensors;
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(tensors[a].offset, tensors[a].bytes) <
           std::pair(tensors[b].offset, tensors[b].bytes);
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = tensors[order[i - 1]];
    const GgufTensor& after = tensors[order[i]];
    if (before.offset + before.bytes > after.offset) {
      return Corrupt(
          "tensors {} and {} overlap: the first ends at byte {}, the second starts at {}",
          Quoted(before.name), Quoted(after.name), before.offset + before.bytes, after.offset);
    }
  }
  return {};
}

}  // namespace

std::size_t FixedSize(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

std::string Quoted(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e || c == '"' || c == '\\') {
      quoted += Format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + (text.size() > kShown ? "...\"" : "\"");
}

Result<Contents> ParseContents(std::span<const std::byte> bytes) {
  Cursor cursor(bytes);
  auto header = TakeHeader(cursor);
  if (!header) return Fail(header.error());

  Contents contents;
  contents.version = header->version;
  if (auto status = TakeEntries(cursor, header->entries, contents); !status)
    return Fail(status.error());
  if (auto status = FindAlignment(contents); !status) return Fail(status.error());

  for (std::uint64_t i = 0; i < header->tensors; ++i) {
    auto tensor = TakeTensor(cursor, i);
    if (!tensor) return Fail(tensor.error());
    contents.tensors.push_back(*tensor);
  }
  const auto& tensors = contents.tensors;
  auto order =
      UniqueOrder(tensors.size(), "tensor", [&](std::uint32_t i) { return tensors[i].name; });
  if (!order) return Fail(order.error());
  contents.tensor_order = std::move(*order);
  if (auto status = PlaceTensors(cursor.position(), bytes.size(), contents); !status)
    return Fail(status.error());
  return contents;
}

}  // namespace tilewright::gguf
