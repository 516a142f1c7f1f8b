#include "artifact/key_record.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "artifact/field_codec.h"
#include "artifact/include_scan.h"
#include "artifact/spec_words.h"
#include "core/text.h"

namespace tilewright {
namespace {

// Tags of docs/artifact_key.md. Spec fields follow kTagSpec in the order of ForEachSpecField.
enum Tag : std::uint16_t {
  kTagSchema = 0x0001,
  kTagRecord = 0x0002,
  kTagKind = 0x0003,
  kTagSpec = 0x0100,
  kTagRevision = 0x0200,
  kTagRenderRevision = 0x0201,
  kTagLaunchAbi = 0x0202,
  kTagThreads = 0x0203,
  kTagDynamicSmem = 0x0204,
  kTagMaxRegisters = 0x0205,
  kTagMaxSpill = 0x0206,
  kTagMaxStack = 0x0207,
  kTagSource = 0x0300,
  kTagSourceDigest = 0x0301,
  kTagHeaderCount = 0x0302,
  kTagHeader = 0x0303,
  kTagHeaderDigest = 0x0304,
  kTagOptionCount = 0x0400,
  kTagOption = 0x0401,
  kTagOptionValue = 0x0402,
  kTagRequest = 0x0500,
  kTagBackend = 0x0501,
  kTagVersion = 0x0502,
  kTagBuildId = 0x0503,
  kTagBuiltinsVersion = 0x0504,
  kTagBuiltinsBuildId = 0x0505,
};

constexpr std::string_view kRequest = "request";
constexpr std::string_view kAction = "action";
constexpr std::string_view kKind = "cubin";
constexpr std::size_t kMaxIdentityBytes = 256;

std::string_view OrderName(Order order) {
  return order == Order::kRowMajor ? "row_major" : "col_major";
}

/// Writes spec fields in turn; enumerations by name, since their numbers may change.
struct SpecWriter {
  FieldWriter& out;
  std::uint16_t tag = kTagSpec;

  void operator()(std::string_view, const FamilyName& v) { out.Text(tag++, v.view()); }
  void operator()(std::string_view, const CudaArch& v) { out.Text(tag++, v.ToString()); }
  void operator()(std::string_view, DataType v) { out.Text(tag++, DataTypeName(v)); }
  void operator()(std::string_view, Order v) { out.Text(tag++, OrderName(v)); }
  void operator()(std::string_view, SpecEpilogue v) { out.Text(tag++, SpecEpilogueName(v)); }
  void operator()(std::string_view, std::uint8_t v) { out.U32(tag++, v); }
  void operator()(std::string_view, std::uint16_t v) { out.U32(tag++, v); }
  void operator()(std::string_view, std::int32_t v) { out.I32(tag++, v); }
};

/// Reads fields, which must have the expected tags and types in order. Keeps the first error; after
/// one, everything read is empty.
class Decoder {
 public:
  Decoder(std::string_view bytes, std::string_view what) : reader_(bytes), what_(what) {}

  std::string_view Get(std::uint16_t tag, FieldType type, std::string_view name) {
    if (!status_) return {};
    const std::optional<Field> field = reader_.Next();
    if (!field) {
      Corrupt(Format("is cut short or malformed where {} should be", name));
    } else if (field->tag != tag || field->type != type) {
      Corrupt(Format("has tag {:#06x} of type {} where {} should be", field->tag,
                     static_cast<int>(field->type), name));
    } else {
      return field->value;
    }
    return {};
  }
  std::string_view Text(std::uint16_t tag, std::string_view name) {
    return Get(tag, FieldType::kText, name);
  }
  std::uint32_t U32(std::uint16_t tag, std::string_view name) {
    const std::string_view value = Get(tag, FieldType::kU32, name);
    return value.empty() ? 0 : static_cast<std::uint32_t>(LoadLittleEndian(value.data(), 4));
  }
  std::int32_t I32(std::uint16_t tag, std::string_view name) {
    const std::string_view value = Get(tag, FieldType::kI32, name);
    return value.empty() ? 0 : static_cast<std::int32_t>(LoadLittleEndian(value.data(), 4));
  }
  FileDigest Digest(std::uint16_t tag, std::string_view name) {
    const std::string_view value = Get(tag, FieldType::kDigest, name);
    FileDigest digest{};
    if (!value.empty()) std::memcpy(digest.data(), value.data(), digest.size());
    return digest;
  }

  /// The three fields that every record starts with.
  void Start(std::string_view record) {
    const std::uint32_t schema = U32(kTagSchema, "schema");
    if (status_ && schema != kKeySchema) {
      Set(ErrorCode::kUnsupported,
          Format("has schema {}; this version knows {}", schema, kKeySchema));
    }
    const std::string_view kind = Text(kTagRecord, "record");
    if (status_ && kind != record) Corrupt("is of another kind");
  }
  void End() {
    if (status_ && !reader_.AtEnd()) Corrupt("has bytes after its last field");
  }

  void Corrupt(std::string_view why) { Set(ErrorCode::kCorrupt, why); }
  void Set(ErrorCode code, std::string_view why) {
    if (status_) status_ = Fail(code, Format("{} record {}", what_, why));
  }
  const Status& status() const { return status_; }

 private:
  FieldReader reader_;
  std::string_view what_;
  Status status_;
};

/// Reads what SpecWriter wrote.
struct SpecReader {
  Decoder& in;
  std::uint16_t tag = kTagSpec;

  template <class T, class Parsed>
  void Take(std::string_view name, std::string_view text, T& v, const Parsed& parsed) {
    if (parsed) {
      v = *parsed;
    } else {
      in.Set(ErrorCode::kUnsupported,
             Format("has {} \"{}\", unknown to this version", name, text.substr(0, 40)));
    }
  }
  void operator()(std::string_view name, FamilyName& v) {
    const std::string_view text = in.Text(tag++, name);
    if (in.status() && !IsFamilyName(text)) in.Corrupt("has an invalid family name");
    v = FamilyName(text);
  }
  void operator()(std::string_view name, CudaArch& v) {
    const std::string_view text = in.Text(tag++, name);
    Take(name, text, v, ParseCudaArch(text));
  }
  void operator()(std::string_view name, DataType& v) {
    const std::string_view text = in.Text(tag++, name);
    Take(name, text, v, ParseSpecType(text));
  }
  void operator()(std::string_view name, Order& v) {
    const std::string_view text = in.Text(tag++, name);
    for (const Order order : {Order::kColMajor, Order::kRowMajor}) {
      if (text == OrderName(order)) {
        v = order;
        return;
      }
    }
    Take(name, text, v, std::optional<Order>());
  }
  void operator()(std::string_view name, SpecEpilogue& v) {
    const std::string_view text = in.Text(tag++, name);
    Take(name, text, v, ParseSpecEpilogue(text));
  }
  template <class T>
  void Small(std::string_view name, T& v) {
    const std::uint32_t value = in.U32(tag++, name);
    v = static_cast<T>(value);
    if (v != value) in.Corrupt(Format("has {} = {}, out of range", name, value));
  }
  void operator()(std::string_view name, std::uint8_t& v) { Small(name, v); }
  void operator()(std::string_view name, std::uint16_t& v) { Small(name, v); }
  void operator()(std::string_view name, std::int32_t& v) { v = in.I32(tag++, name); }
};

void ReadHeaders(Decoder& in, RequestFields& fields) {
  // Each iteration consumes fields or stops, so a large count allocates nothing.
  const std::uint32_t count = in.U32(kTagHeaderCount, "header_count");
  for (std::uint32_t i = 0; i < count && in.status(); ++i) {
    RequestFields::File file;
    file.name = in.Text(kTagHeader, "header");
    file.digest = in.Digest(kTagHeaderDigest, "header_digest");
    if (!in.status()) return;
    if (!IsVirtualName(file.name)) return in.Corrupt("has a header that is not a virtual name");
    if (i != 0 && fields.headers.back().name >= file.name) {
      return in.Corrupt("has headers out of order");
    }
    fields.headers.push_back(file);
  }
}

void ReadOptions(Decoder& in, RequestFields& fields) {
  const std::uint32_t count = in.U32(kTagOptionCount, "option_count");
  for (std::uint32_t i = 0; i < count && in.status(); ++i) {
    NormalOption option;
    option.flag = in.Text(kTagOption, "option");
    option.value = in.Text(kTagOptionValue, "option_value");
    if (!in.status()) return;
    if (i != 0 && fields.options.back().flag >= option.flag) {
      return in.Corrupt("has options out of order");
    }
    fields.options.push_back(std::move(option));
  }
  if (!in.status()) return;
  if (const auto known = FamilyOptionsOf(fields.options); !known) {
    in.Set(ErrorCode::kUnsupported, known.error().message);
  }
}

}  // namespace

std::string EncodeRequestFields(const RequestFields& fields) {
  std::string bytes;
  bytes.reserve(1024 + 128 * fields.headers.size());
  FieldWriter out(bytes);
  out.U32(kTagSchema, kKeySchema);
  out.Text(kTagRecord, kRequest);
  out.Text(kTagKind, kKind);
  SpecWriter spec_writer{out};
  ForEachSpecField(fields.spec, spec_writer);
  out.U32(kTagRevision, fields.revision);
  out.U32(kTagRenderRevision, fields.render_revision);
  out.U32(kTagLaunchAbi, fields.launch_abi);
  out.U32(kTagThreads, fields.launch.threads);
  out.U32(kTagDynamicSmem, fields.launch.dynamic_smem_bytes);
  out.U32(kTagMaxRegisters, fields.limits.max_registers);
  out.U32(kTagMaxSpill, fields.limits.max_spill_bytes);
  out.U32(kTagMaxStack, fields.limits.max_stack_bytes);
  out.Text(kTagSource, fields.source.name);
  out.Digest32(kTagSourceDigest, fields.source.digest);
  out.U32(kTagHeaderCount, static_cast<std::uint32_t>(fields.headers.size()));
  for (const RequestFields::File& header : fields.headers) {
    out.Text(kTagHeader, header.name);
    out.Digest32(kTagHeaderDigest, header.digest);
  }
  out.U32(kTagOptionCount, static_cast<std::uint32_t>(fields.options.size()));
  for (const NormalOption& option : fields.options) {
    out.Text(kTagOption, option.flag);
    out.Text(kTagOptionValue, option.value);
  }
  return bytes;
}

std::string EncodeActionFields(const ActionFields& fields) {
  std::string bytes;
  FieldWriter out(bytes);
  out.U32(kTagSchema, kKeySchema);
  out.Text(kTagRecord, kAction);
  out.Digest32(kTagRequest, fields.request.bytes);
  out.Text(kTagBackend, fields.compiler.backend);
  out.Text(kTagVersion, fields.compiler.version);
  out.Text(kTagBuildId, fields.compiler.build_id);
  out.Text(kTagBuiltinsVersion, fields.compiler.builtins_version);
  out.Text(kTagBuiltinsBuildId, fields.compiler.builtins_build_id);
  return bytes;
}

Status CheckCompilerIdentity(const CompilerIdentity& compiler) {
  const struct {
    std::string_view name, value;
    bool required;
  } parts[] = {
      {"backend", compiler.backend, true},
      {"version", compiler.version, true},
      {"build_id", compiler.build_id, true},
      {"builtins_version", compiler.builtins_version, false},  // may be empty
      {"builtins_build_id", compiler.builtins_build_id, false},
  };
  for (const auto& part : parts) {
    if (part.required && part.value.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("the compiler's {} is empty: two compilers could share a key", part.name));
    }
    if (part.value.size() > kMaxIdentityBytes) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("the compiler's {} has {} bytes, at most {} are allowed", part.name,
                         part.value.size(), kMaxIdentityBytes));
    }
  }
  return {};
}

Result<RequestFields> DecodeRequestFields(std::string_view bytes) {
  RequestFields fields;
  Decoder in(bytes, kRequest);
  if (bytes.size() > kMaxRecordBytes) {
    in.Corrupt(Format("has {} bytes, at most {} are allowed", bytes.size(), kMaxRecordBytes));
  }
  in.Start(kRequest);
  const std::string_view kind = in.Text(kTagKind, "kind");
  if (in.status() && kind != kKind) in.Set(ErrorCode::kUnsupported, "is not for a cubin");
  SpecReader spec_reader{in};
  ForEachSpecField(fields.spec, spec_reader);
  fields.revision = in.U32(kTagRevision, "revision");
  fields.render_revision = in.U32(kTagRenderRevision, "render_revision");
  fields.launch_abi = in.U32(kTagLaunchAbi, "launch_abi");
  fields.launch.threads = in.U32(kTagThreads, "threads");
  fields.launch.dynamic_smem_bytes = in.U32(kTagDynamicSmem, "dynamic_smem_bytes");
  fields.limits.max_registers = in.U32(kTagMaxRegisters, "max_registers");
  fields.limits.max_spill_bytes = in.U32(kTagMaxSpill, "max_spill_bytes");
  fields.limits.max_stack_bytes = in.U32(kTagMaxStack, "max_stack_bytes");
  fields.source.name = in.Text(kTagSource, "source");
  fields.source.digest = in.Digest(kTagSourceDigest, "source_digest");
  if (in.status() && !IsVirtualName(fields.source.name)) {
    in.Corrupt("has a source that is not a virtual name");
  }
  ReadHeaders(in, fields);
  ReadOptions(in, fields);
  in.End();
  if (!in.status()) return Fail(in.status().error());
  return fields;
}

Result<ActionFields> DecodeActionFields(std::string_view bytes) {
  ActionFields fields;
  Decoder in(bytes, kAction);
  in.Start(kAction);
  fields.request.bytes = in.Digest(kTagRequest, "request");
  fields.compiler.backend = in.Text(kTagBackend, "backend");
  fields.compiler.version = in.Text(kTagVersion, "version");
  fields.compiler.build_id = in.Text(kTagBuildId, "build_id");
  fields.compiler.builtins_version = in.Text(kTagBuiltinsVersion, "builtins_version");
  fields.compiler.builtins_build_id = in.Text(kTagBuiltinsBuildId, "builtins_build_id");
  in.End();
  if (!in.status()) return Fail(in.status().error());
  if (const Status status = CheckCompilerIdentity(fields.compiler); !status) {
    return Fail(ErrorCode::kCorrupt, Format("action record: {}", status.error().message));
  }
  return fields;
}

}  // namespace tilewright
