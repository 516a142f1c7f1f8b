#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "core/text.h"
#include "model/gguf/gguf_mapping.h"
#include "model/gguf/gguf_parse.h"

namespace tilewright {

using gguf::Quoted;

namespace {

constexpr std::string_view kNumberKey = "split.no";  // from 0
constexpr std::string_view kCountKey = "split.count";
constexpr std::string_view kTensorsKey = "split.tensors.count";

// "model-00002-of-00005.gguf" -> {"model", 2, 5}; nullopt for other names.
struct SplitName {
  std::string prefix;
  std::uint64_t number = 0;  // from 1
  std::uint64_t count = 0;
};
std::optional<SplitName> ParseSplitName(std::string_view path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() < kPattern.size()) return std::nullopt;
  SplitName name{.prefix = std::string(path.substr(0, path.size() - kPattern.size()))};
  path.remove_prefix(name.prefix.size());
  int digits = 0;
  for (std::size_t i = 0; i < kPattern.size(); ++i) {
    if (kPattern[i] != '0') {
      if (path[i] != kPattern[i]) return std::nullopt;
      continue;
    }
    if (path[i] < '0' || path[i] > '9') return std::nullopt;
    std::uint64_t& number = digits++ < 5 ? name.number : name.count;
    number = number * 10 + static_cast<std::uint64_t>(path[i] - '0');
  }
  return name;
}

std::string PathOf(const std::string& prefix, std::uint64_t number, std::uint64_t count) {
  return Format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

// 0 if the key is missing or no such number.
std::uint64_t NumberAt(const std::vector<GgufEntry>& entries, std::string_view key) {
  const auto found = std::ranges::find(entries, key, &GgufEntry::key);
  return found != entries.end() ? found->value.Unsigned().value_or(0) : 0;
}

}  // namespace

Status GgufFile::AddPart(Part part) {
  Result<gguf::Contents> contents;
  try {
    contents = gguf::ParseContents(part.bytes);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory, Format("{}: no memory for its metadata", part.path));
  }
  if (!contents)
    return Fail(contents.error().code, Format("{}: {}", part.path, contents.error().message));
  const auto index = static_cast<std::uint32_t>(parts_.size());
  if (index == 0) {
    version_ = contents->version;
    alignment_ = contents->alignment;
    entries_ = std::move(contents->entries);
    tensors_ = std::move(contents->tensors);
    entry_order_ = std::move(contents->entry_order);
    tensor_order_ = std::move(contents->tensor_order);
  } else {
    const std::uint64_t number = NumberAt(contents->entries, kNumberKey);
    const std::uint64_t count = NumberAt(contents->entries, kCountKey);
    if (number != index || count != NumberAt(entries_, kCountKey)) {
      return Fail(
          ErrorCode::kCorrupt,
          Format("{}: {} = {} and {} = {}, expected {} and {} after {}", part.path, kNumberKey,
                 number, kCountKey, count, index, NumberAt(entries_, kCountKey), path_));
    }
    for (GgufTensor& tensor : contents->tensors) {
      tensor.part = index;
      tensors_.push_back(tensor);
    }
  }
  parts_.push_back(std::move(part));
  return {};
}

Status GgufFile::OrderTensors() {
  tensor_order_.resize(tensors_.size());
  std::iota(tensor_order_.begin(), tensor_order_.end(), 0u);
  const auto name = [this](std::uint32_t i) { return tensors_[i].name; };
  std::ranges::sort(tensor_order_, {}, name);
  const auto twin = std::ranges::adjacent_find(tensor_order_, {}, name);
  if (twin == tensor_order_.end()) return {};
  const std::uint32_t first = tensors_[*twin].part, second = tensors_[*(twin + 1)].part;
  return Fail(ErrorCode::kCorrupt,
              Format("{}: tensor {} is also in {}", parts_[std::max(first, second)].path,
                     Quoted(name(*twin)), parts_[std::min(first, second)].path));
}

Status GgufFile::AddOtherParts(const std::string& prefix, std::uint64_t count) {
  for (std::uint64_t number = 2; number <= count; ++number) {
    const std::string path = PathOf(prefix, number, count);
    Result<std::unique_ptr<Mapping>> mapping = Mapping::Open(path);
    if (!mapping) {
      return Fail(mapping.error().code, Format("{} (file {} of {} of a split model)",
                                               mapping.error().message, number, count));
    }
    Part part{.path = path, .mapping = std::move(*mapping), .bytes = {}};
    part.bytes = part.mapping->bytes();
    if (Status status = AddPart(std::move(part)); !status) return status;
  }
  const std::uint64_t tensors = NumberAt(entries_, kTensorsKey);
  if (Has(kTensorsKey) && tensors != tensors_.size()) {
    return Fail(ErrorCode::kCorrupt, Format("{}: {} = {}, but its {} files have {} tensors", path_,
                                            kTensorsKey, tensors, count, tensors_.size()));
  }
  return OrderTensors();
}

Result<GgufFile> GgufFile::Open(const std::string& path) {
  auto mapping = Mapping::Open(path);
  if (!mapping) return Fail(mapping.error());
  Part first{.path = path, .mapping = std::move(*mapping), .bytes = {}};
  first.bytes = first.mapping->bytes();
  GgufFile file;
  file.path_ = path;
  if (auto status = file.AddPart(std::move(first)); !status) return Fail(status.error());
  const std::optional<SplitName> name = ParseSplitName(path);
  const std::uint64_t count = NumberAt(file.entries_, kCountKey);
  const std::uint64_t number = NumberAt(file.entries_, kNumberKey) + 1;
  if (count > 1 || (name && name->count > 1)) {
    if (count <= 1) {
      return Fail(
          ErrorCode::kCorrupt,
          Format("{}: is called file {} of {} of a split model, but holds a whole one ({} = "
                 "{}); give it another name",
                 path, name->number, name->count, kCountKey, count));
    }
    if (!name || name->count != count || name->number != number) {
      return Fail(ErrorCode::kCorrupt,
                  Format("{}: is file {} of {} of a split model, whose files are found by their "
                         "names; call it {}",
                         path, number, count, PathOf("NAME", number, count)));
    }
    if (number != 1) return Open(PathOf(name->prefix, 1, count));
    if (auto status = file.AddOtherParts(name->prefix, count); !status) return Fail(status.error());
  }
  // Detects a file that is written or truncated while it is parsed here, rather than in a kernel.
  if (auto status = file.CheckUnchanged(); !status) return Fail(status.error());
  return file;
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.path_ = name;
  Part whole{.path = std::move(name), .mapping = nullptr, .bytes = bytes};
  if (auto status = file.AddPart(std::move(whole)); !status) return Fail(status.error());
  if (const std::uint64_t count = NumberAt(file.entries_, kCountKey); count > 1) {
    return Fail(ErrorCode::kUnsupported,
                Format("{}: is part {} of a model split into {} files; open it by its path",
                       file.path_, NumberAt(file.entries_, kNumberKey) + 1, count));
  }
  return file;
}

}  // namespace tilewright
