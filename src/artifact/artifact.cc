#include "tilewright/artifact.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "artifact/entry_format.h"
#include "artifact/field_codec.h"
#include "artifact/key_record.h"
#include "core/sha256.h"
#include "core/text.h"

namespace tilewright {
namespace {

std::string_view SectionName(std::uint32_t tag) {
  switch (tag) {
    case kSectionCubin:
      return "cubin";
    case kSectionPtx:
      return "ptx";
    case kSectionSource:
      return "source";
    case kSectionLog:
      return "log";
    default:
      return "unknown";
  }
}

std::string_view BytesOfKey(const ArtifactKey& key) {
  return std::string_view(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
}

struct Section {
  std::uint32_t tag = 0;
  std::string_view bytes;
};

std::string EncodeMetadata(const ArtifactData& data) {
  std::string bytes;
  FieldWriter out(bytes);
  out.Text(kMetaRequestRecord, data.request_record);
  out.Text(kMetaActionRecord, data.action_record);
  out.Text(kMetaSymbol, data.symbol);
  out.U32(kMetaThreads, data.launch.threads);
  out.U32(kMetaDynamicSmem, data.launch.dynamic_smem_bytes);
  out.U32(kMetaLaunchAbi, data.launch_abi);
  out.U32(kMetaRegisters, data.resources.registers);
  out.U32(kMetaStaticSmem, data.resources.static_smem_bytes);
  out.U32(kMetaConstant, data.resources.constant_bytes);
  out.U32(kMetaStack, data.resources.stack_bytes);
  out.U32(kMetaSpillStores, EncodeKnown(data.resources.spill_store_bytes));
  out.U32(kMetaSpillLoads, EncodeKnown(data.resources.spill_load_bytes));
  out.U32(kMetaBarriers, data.resources.barriers);
  out.U32(kMetaMinDriver, data.min_driver);
  out.U64(kMetaCompileMs, std::bit_cast<std::uint64_t>(data.compile_ms));
  return bytes;
}

bool IsTime(double ms) { return std::isfinite(ms) && !std::signbit(ms); }

/// How the records disagree with the rest, or nullopt. Writer and reader make the same checks and
/// give the same message.
std::optional<std::string> Disagreement(const ArtifactData& data, const RequestFields& request,
                                        const ActionFields& action) {
  if (action.request != data.request) {
    return Format("the action record is for request {}, but the request record's key is {}",
                  action.request.Hex(), data.request.Hex());
  }
  if (data.launch_abi != request.launch_abi) {
    return Format("launch_abi = {}, but the request record has {}", data.launch_abi,
                  request.launch_abi);
  }
  if (data.launch != request.launch) {
    return Format(
        "{} threads and {} bytes of dynamic shared memory, but the request record has {} and {}",
        data.launch.threads, data.launch.dynamic_smem_bytes, request.launch.threads,
        request.launch.dynamic_smem_bytes);
  }
  if (const std::string symbol = KernelSymbol(request.spec, data.request); data.symbol != symbol) {
    return Format("the symbol is \"{}\", but the request's is \"{}\"", data.symbol.substr(0, 80),
                  symbol);
  }
  if (!IsTime(data.compile_ms)) {
    return Format("compile_ms = {}: must be a number >= 0", data.compile_ms);
  }
  if (data.cubin.empty()) return "the cubin is empty";
  return std::nullopt;
}

/// Reads one entry, whatever its bytes. Members are set as the checks proceed.
class EntryReader {
 public:
  explicit EntryReader(std::string_view file) : file_(file) {}

  Result<ArtifactData> Read() {
    for (const auto step : {&EntryReader::ReadHead, &EntryReader::ReadSections,
                            &EntryReader::ReadMetadata, &EntryReader::ReadRecords}) {
      if (Status status = (this->*step)(); !status) return Fail(status.error());
    }
    return std::move(data_);
  }

 private:
  std::uint64_t At(std::size_t offset, std::size_t bytes) const {
    return LoadLittleEndian(file_.data() + offset, bytes);
  }
  static tl::unexpected<Error> Corrupt(std::string why) {
    return Fail(ErrorCode::kCorrupt, "artifact entry: " + std::move(why));
  }
  static tl::unexpected<Error> Unsupported(std::string why) {
    return Fail(ErrorCode::kUnsupported, "artifact entry: " + std::move(why));
  }
  static bool AllZero(std::string_view bytes) {
    return bytes.find_first_not_of('\0') == std::string_view::npos;
  }

  /// Reads the fixed part and checks the digest of the head, which covers all but the sections.
  Status ReadHead() {
    if (file_.size() < kEntryTableAt + kEntryDigestBytes) {
      return Corrupt(Format("{} bytes are too few for a header", file_.size()));
    }
    if (file_.substr(0, kEntryMagic.size()) != kEntryMagic) return Corrupt("no magic number");
    if (const auto major = At(kEntryMajorAt, 2); major != kEntryMajor) {
      return Unsupported(Format("format {}.{}; this version reads {}.x", major,
                                At(kEntryMinorAt, 2), kEntryMajor));
    }
    const std::uint64_t file_bytes = At(kEntryFileBytesAt, 8);
    if (file_bytes != file_.size() || file_bytes > kMaxEntryBytes) {
      return Corrupt(
          Format("file length {} in the header, the file has {} bytes, at most {} are "
                 "allowed",
                 file_bytes, file_.size(), kMaxEntryBytes));
    }
    head_bytes_ = At(kEntryHeadBytesAt, 4);
    if (head_bytes_ > file_.size()) {
      return Corrupt(
          Format("header length {} beyond the file's {} bytes", head_bytes_, file_.size()));
    }
    sections_ = At(kEntrySectionCountAt, 4);
    metadata_bytes_ = At(kEntryMetadataBytesAt, 4);
    // No overflow: all terms are below 2^32.
    const std::uint64_t need =
        kEntryTableAt + sections_ * kEntryRowBytes + metadata_bytes_ + kEntryDigestBytes;
    if (head_bytes_ > kMaxEntryHeadBytes || sections_ > kMaxEntrySections ||
        head_bytes_ != AlignEntry(need)) {
      return Corrupt(Format("header length {}: {} sections and {} bytes of metadata need {}",
                            head_bytes_, sections_, metadata_bytes_, AlignEntry(need)));
    }
    const std::size_t covered = head_bytes_ - kEntryDigestBytes;
    if (Status status = CheckDigest(file_.substr(0, covered), covered, "header"); !status) {
      return status;
    }
    if (const auto flags = At(kEntryFlagsAt, 4); flags != 0) {
      return Unsupported(Format("flags {:#x} are not known to this version", flags));
    }
    const std::size_t end = kEntryTableAt + sections_ * kEntryRowBytes + metadata_bytes_;
    if (At(kEntryReservedAt, 4) != 0 || !AllZero(file_.substr(end, covered - end))) {
      return Corrupt("reserved bytes of the header are not zero");
    }
    return {};
  }

  Status CheckDigest(std::string_view bytes, std::size_t stored_at, std::string_view what) const {
    const auto digest = Sha256(bytes);
    if (!digest) return Fail(digest.error());
    if (std::memcmp(digest->data(), file_.data() + stored_at, digest->size()) != 0) {
      return Corrupt(Format("{} digest differs", what));
    }
    return {};
  }

  Status ReadSections() {
    std::uint32_t last_tag = 0;
    std::uint64_t end = head_bytes_;
    for (std::uint64_t i = 0; i < sections_; ++i) {
      const std::size_t row = kEntryTableAt + i * kEntryRowBytes;
      const auto tag = static_cast<std::uint32_t>(At(row, 4));
      const std::uint64_t offset = At(row + 8, 8), bytes = At(row + 16, 8);
      if (tag <= last_tag) return Corrupt(Format("section {} is out of order", tag));
      last_tag = tag;
      if (At(row + 4, 4) != 0) return Corrupt("reserved bytes of the section table are not zero");
      if (offset != AlignEntry(end) || offset > file_.size() || bytes > file_.size() - offset) {
        return Corrupt(
            Format("section {} at {} with {} bytes is misplaced or extends beyond the file's {}",
                   SectionName(tag), offset, bytes, file_.size()));
      }
      if (!AllZero(file_.substr(end, offset - end))) {
        return Corrupt(Format("bytes before section {} are not zero", SectionName(tag)));
      }
      const std::string_view content = file_.substr(offset, bytes);
      if (Status status = CheckDigest(content, row + 24, SectionName(tag)); !status) return status;
      end = offset + bytes;
      if (Status status = TakeSection(tag, content); !status) return status;
    }
    if (seen_sections_ != kEntrySections) return Corrupt("a section is missing");
    if (AlignEntry(end) != file_.size() || !AllZero(file_.substr(end))) {
      return Corrupt(Format("{} bytes after the last section", file_.size() - end));
    }
    return {};
  }

  Status TakeSection(std::uint32_t tag, std::string_view content) {
    std::string_view* const places[] = {&data_.cubin, &data_.ptx, &data_.source, &data_.log};
    if (tag <= kEntrySections) {
      *places[tag - 1] = content;
      ++seen_sections_;
    } else if ((tag & kOptionalSection) == 0) {
      return Unsupported(Format("section {} is not known to this version", tag));
    }
    return {};
  }

  Status ReadMetadata() {
    FieldReader reader(file_.substr(kEntryTableAt + sections_ * kEntryRowBytes, metadata_bytes_));
    int last_tag = 0, known = 0;
    while (!reader.AtEnd()) {
      const std::optional<Field> field = reader.Next();
      if (!field) return Corrupt("metadata is cut short or malformed");
      if (field->tag <= last_tag) return Corrupt(Format("metadata {} is out of order", field->tag));
      last_tag = field->tag;
      if (field->tag > kMetaCompileMs) {
        if ((field->tag & kOptionalMetadata) != 0) continue;
        return Unsupported(Format("metadata {} is not known to this version", field->tag));
      }
      if (!TakeMetadata(*field)) {
        return Corrupt(Format("metadata {} is of the wrong type", field->tag));
      }
      ++known;
    }
    if (known != kMetaCompileMs) return Corrupt("metadata is incomplete");
    return {};
  }

  /// False for a field of the wrong type. Its tag must be at most kMetaCompileMs.
  bool TakeMetadata(const Field& field) {
    const auto text = [&](auto& out) {
      if (field.type == FieldType::kText) out = field.value;
      return field.type == FieldType::kText;
    };
    const auto u32 = [&](std::uint32_t& out) {
      if (field.type != FieldType::kU32) return false;
      out = static_cast<std::uint32_t>(LoadLittleEndian(field.value.data(), 4));
      return true;
    };
    const auto known = [&](std::optional<std::uint32_t>& out) {
      std::uint32_t bytes = 0;
      if (!u32(bytes)) return false;
      out = DecodeKnown(bytes);
      return true;
    };
    ResourceUsage& used = data_.resources;
    switch (field.tag) {
      case kMetaRequestRecord:
        return text(data_.request_record);
      case kMetaActionRecord:
        return text(data_.action_record);
      case kMetaSymbol:
        return text(data_.symbol);
      case kMetaThreads:
        return u32(data_.launch.threads);
      case kMetaDynamicSmem:
        return u32(data_.launch.dynamic_smem_bytes);
      case kMetaLaunchAbi:
        return u32(data_.launch_abi);
      case kMetaRegisters:
        return u32(used.registers);
      case kMetaStaticSmem:
        return u32(used.static_smem_bytes);
      case kMetaConstant:
        return u32(used.constant_bytes);
      case kMetaStack:
        return u32(used.stack_bytes);
      case kMetaSpillStores:
        return known(used.spill_store_bytes);
      case kMetaSpillLoads:
        return known(used.spill_load_bytes);
      case kMetaBarriers:
        return u32(used.barriers);
      case kMetaMinDriver:
        return u32(data_.min_driver);
      default:
        if (field.type != FieldType::kU64) return false;
        data_.compile_ms = std::bit_cast<double>(LoadLittleEndian(field.value.data(), 8));
        return true;
    }
  }

  /// Checks that the records hash to the keys of the head and agree with it.
  Status ReadRecords() {
    if (Status status = CheckDigest(data_.request_record, kEntryRequestAt, "request record");
        !status) {
      return status;
    }
    if (Status status = CheckDigest(data_.action_record, kEntryActionAt, "action record");
        !status) {
      return status;
    }
    std::memcpy(data_.request.bytes.data(), file_.data() + kEntryRequestAt, kEntryDigestBytes);
    std::memcpy(data_.action.bytes.data(), file_.data() + kEntryActionAt, kEntryDigestBytes);
    const Result<RequestFields> request = DecodeRequestFields(data_.request_record);
    if (!request) return Wrapped(request.error());
    Result<ActionFields> action = DecodeActionFields(data_.action_record);
    if (!action) return Wrapped(action.error());
    if (auto why = Disagreement(data_, *request, *action)) return Corrupt(*std::move(why));
    data_.spec = request->spec;
    data_.compiler = std::move(action->compiler);
    return {};
  }

  static Status Wrapped(const Error& error) {
    return Fail(error.code, "artifact entry: " + error.message);
  }

  std::string_view file_;
  std::uint64_t head_bytes_ = 0, sections_ = 0, metadata_bytes_ = 0;
  std::uint32_t seen_sections_ = 0;
  ArtifactData data_;
};

/// Overwrites `bytes` bytes at `offset` with a number.
void Put(std::string& out, std::size_t offset, std::uint64_t value, std::size_t bytes) {
  std::string encoded;
  AppendLittleEndian(encoded, value, bytes);
  out.replace(offset, bytes, encoded);
}

Status PutDigest(std::string& out, std::size_t offset, std::string_view of) {
  const auto digest = Sha256(of);
  if (!digest) return Fail(digest.error());
  out.replace(offset, digest->size(), reinterpret_cast<const char*>(digest->data()),
              digest->size());
  return {};
}

/// Writes the file; everything has been checked.
Result<std::string> WriteEntry(const ArtifactData& data) {
  const Section sections[kEntrySections] = {{kSectionCubin, data.cubin},
                                            {kSectionPtx, data.ptx},
                                            {kSectionSource, data.source},
                                            {kSectionLog, data.log}};
  const std::string metadata = EncodeMetadata(data);
  const std::size_t head_bytes = AlignEntry(kEntryTableAt + kEntrySections * kEntryRowBytes +
                                            metadata.size() + kEntryDigestBytes);
  std::uint64_t file_bytes = head_bytes;
  for (const Section& section : sections)
    file_bytes = AlignEntry(file_bytes) + section.bytes.size();
  file_bytes = AlignEntry(file_bytes);
  if (head_bytes > kMaxEntryHeadBytes || file_bytes > kMaxEntryBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("an artifact entry of {} bytes (header {}): at most {} (header {}) are "
                       "allowed",
                       file_bytes, head_bytes, kMaxEntryBytes, kMaxEntryHeadBytes));
  }
  std::string out(file_bytes, '\0');
  out.replace(0, kEntryMagic.size(), kEntryMagic);
  Put(out, kEntryMajorAt, kEntryMajor, 2);
  Put(out, kEntryMinorAt, kEntryMinor, 2);
  Put(out, kEntryHeadBytesAt, head_bytes, 4);
  Put(out, kEntryFileBytesAt, file_bytes, 8);
  Put(out, kEntrySectionCountAt, kEntrySections, 4);
  out.replace(kEntryRequestAt, kEntryDigestBytes, BytesOfKey(data.request));
  out.replace(kEntryActionAt, kEntryDigestBytes, BytesOfKey(data.action));
  Put(out, kEntryMetadataBytesAt, metadata.size(), 4);
  std::uint64_t at = head_bytes;
  for (std::size_t i = 0; i < kEntrySections; ++i) {
    const std::size_t row = kEntryTableAt + i * kEntryRowBytes;
    at = AlignEntry(at);
    Put(out, row, sections[i].tag, 4);
    Put(out, row + 8, at, 8);
    Put(out, row + 16, sections[i].bytes.size(), 8);
    if (Status status = PutDigest(out, row + 24, sections[i].bytes); !status) {
      return Fail(status.error());
    }
    out.replace(at, sections[i].bytes.size(), sections[i].bytes);
    at += sections[i].bytes.size();
  }
  out.replace(kEntryTableAt + kEntrySections * kEntryRowBytes, metadata.size(), metadata);
  const std::size_t covered = head_bytes - kEntryDigestBytes;
  if (Status status = PutDigest(out, covered, std::string_view(out).substr(0, covered)); !status) {
    return Fail(status.error());
  }
  return out;
}

}  // namespace

Result<std::string> EncodeArtifact(const ArtifactData& data) {
  const auto fail = [](const std::string& why) {
    return Fail(ErrorCode::kInvalidArgument, "artifact: " + why);
  };
  const Result<RequestFields> request = DecodeRequestFields(data.request_record);
  if (!request) return fail(request.error().message);
  Result<ActionFields> action = DecodeActionFields(data.action_record);
  if (!action) return fail(action.error().message);
  const auto request_key = Sha256(data.request_record);
  if (!request_key) return Fail(request_key.error());
  const auto action_key = Sha256(data.action_record);
  if (!action_key) return Fail(action_key.error());
  ArtifactData whole = data;
  whole.request = ArtifactKey{*request_key};
  whole.action = ArtifactKey{*action_key};
  if (const auto why = Disagreement(whole, *request, *action)) return fail(*why);
  return WriteEntry(whole);
}

Result<ArtifactData> DecodeArtifact(std::string_view bytes) { return EntryReader(bytes).Read(); }

bool IsEntryFile(std::string_view bytes) {
  // Checks the part of the magic number before its line ends. A file whose line ends were converted
  // is still recognised, and DecodeArtifact reports the damage.
  constexpr std::size_t kName = 4;
  return bytes.substr(0, kName) == kEntryMagic.substr(0, kName);
}

}  // namespace tilewright
