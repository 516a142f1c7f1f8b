#include "tilewright/artifact_key.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "artifact/compile_options.h"
#include "artifact/include_scan.h"
#include "artifact/key_record.h"
#include "artifact/render.h"
#include "artifact/spec_words.h"
#include "core/sha256.h"
#include "core/text.h"

namespace tilewright {
namespace {

/// A scanned file. Families share most of their headers, so each is scanned once.
struct Scanned {
  FileDigest digest{};
  std::vector<std::string> includes;
};

class Scans {
 public:
  Result<const Scanned*> Get(const SourceFile& file) {
    const auto [it, is_new] = scans_.try_emplace({file.text.data(), file.text.size()});
    if (is_new) {
      const auto digest = Sha256(file.text);
      if (!digest) return Fail(digest.error());
      it->second.digest = *digest;
      auto includes = ScanIncludes(file.text);
      if (!includes) {
        scans_.erase(it);
        return Fail(includes.error().code, Format("{}: {}", file.name, includes.error().message));
      }
      it->second.includes = *std::move(includes);
    }
    return &it->second;
  }

 private:
  std::map<std::pair<const char*, std::size_t>, Scanned> scans_;
};

const SourceFile* FindFile(std::span<const SourceFile> files, std::string_view name) {
  for (const SourceFile& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

/// A file of the family, else an embedded file.
const SourceFile* FindFile(const KernelFamily& family, std::string_view name) {
  const SourceFile* file = FindFile(family.files, name);
  return file != nullptr ? file : FindFile(EmbeddedSources(), name);
}

/// The translation unit and every header that it includes, directly or not, also by way of
/// spec.cuh.
Result<KernelSources::Unit> MakeUnit(const KernelFamily& family, Scans& scans) {
  if (family.source == kSpecHeader) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("kernel family \"{}\": the source may not be \"{}\", which is generated for "
                       "each spec",
                       family.name.view(), kSpecHeader));
  }
  KernelSources::Unit unit;
  unit.family = family.name;
  struct Wanted {
    std::string name;
    std::string_view by;
  };
  std::deque<Wanted> wanted = {{std::string(family.source), ""},
                               {std::string(kSpecHeaderInclude), kSpecHeader}};
  std::set<std::string, std::less<>> seen = {std::string(kSpecHeader)};
  for (; !wanted.empty(); wanted.pop_front()) {
    const Wanted& next = wanted.front();
    if (!seen.insert(next.name).second) continue;
    const SourceFile* file = FindFile(family, next.name);
    if (file == nullptr || !IsVirtualName(next.name)) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("kernel family \"{}\": {} \"{}\" {}{}", family.name.view(),
                         next.by.empty() ? "source" : "include", next.name,
                         file == nullptr ? "matches no embedded file"
                                         : "is not a virtual name (relative, printable, no \"..\")",
                         next.by.empty() ? "" : Format(", included by {}", next.by)));
    }
    const Result<const Scanned*> scanned = scans.Get(*file);
    if (!scanned) {
      return Fail(scanned.error().code,
                  Format("kernel family \"{}\": {}", family.name.view(), scanned.error().message));
    }
    unit.files.push_back({*file, (*scanned)->digest});
    for (const std::string& include : (*scanned)->includes) wanted.push_back({include, file->name});
  }
  std::sort(unit.files.begin() + 1, unit.files.end(),
            [](const auto& a, const auto& b) { return a.file.name < b.file.name; });
  return unit;
}

Result<KeyRecord> Keyed(std::string bytes) {
  if (bytes.size() > kMaxRecordBytes) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("a key record of {} bytes: at most {} are allowed", bytes.size(), kMaxRecordBytes));
  }
  const auto digest = Sha256(bytes);
  if (!digest) return Fail(digest.error());
  return KeyRecord{std::move(bytes), ArtifactKey{*digest}};
}

/// A field of a spec as text.
struct SpecLister {
  std::vector<KeyField>& out;

  void Add(std::string_view name, std::string value) {
    out.push_back({std::string(name), std::move(value)});
  }
  void operator()(std::string_view name, const FamilyName& v) { Add(name, std::string(v.view())); }
  void operator()(std::string_view name, const CudaArch& v) { Add(name, v.ToString()); }
  void operator()(std::string_view name, DataType v) { Add(name, std::string(DataTypeName(v))); }
  void operator()(std::string_view name, Order v) {
    Add(name, v == Order::kRowMajor ? "row_major" : "col_major");
  }
  void operator()(std::string_view name, SpecEpilogue v) {
    Add(name, std::string(SpecEpilogueName(v)));
  }
  void operator()(std::string_view name, std::int32_t v) { Add(name, Format("{}", v)); }
};

std::vector<KeyField> ListRequest(const RequestFields& fields) {
  std::vector<KeyField> out = {
      {"schema", Format("{}", kKeySchema)}, {"record", "request"}, {"kind", "cubin"}};
  SpecLister lister{out};
  ForEachSpecField(fields.spec, lister);
  lister.Add("revision", Format("{}", fields.revision));
  lister.Add("render_revision", Format("{}", fields.render_revision));
  lister.Add("launch_abi", Format("{}", fields.launch_abi));
  lister.Add("threads", Format("{}", fields.launch.threads));
  lister.Add("dynamic_smem_bytes", Format("{}", fields.launch.dynamic_smem_bytes));
  lister.Add("max_registers", Format("{}", fields.limits.max_registers));
  lister.Add("max_spill_bytes", Format("{}", fields.limits.max_spill_bytes));
  lister.Add("max_stack_bytes", Format("{}", fields.limits.max_stack_bytes));
  lister.Add("source", std::string(fields.source.name));
  lister.Add("source_digest", HexOf(fields.source.digest));
  for (const auto& header : fields.headers) {
    lister.Add(Format("header {}", header.name), HexOf(header.digest));
  }
  for (const NormalOption& option : fields.options) {
    lister.Add(Format("option {}", option.flag), option.value.empty() ? "given" : option.value);
  }
  return out;
}

std::vector<KeyField> ListAction(const ActionFields& fields) {
  return {{"schema", Format("{}", kKeySchema)},
          {"record", "action"},
          {"request", fields.request.Hex()},
          {"backend", fields.compiler.backend},
          {"version", fields.compiler.version},
          {"build_id", fields.compiler.build_id},
          {"builtins_version", fields.compiler.builtins_version},
          {"builtins_build_id", fields.compiler.builtins_build_id}};
}

}  // namespace

std::string ArtifactKey::Hex() const { return HexOf(bytes); }

Result<ArtifactKey> ParseArtifactKey(std::string_view hex) {
  ArtifactKey key;
  constexpr std::string_view kDigits = "0123456789abcdef";
  bool ok = hex.size() == 2 * key.bytes.size();
  for (std::size_t i = 0; ok && i < hex.size(); ++i) {
    const std::size_t digit = kDigits.find(hex[i]);
    ok = digit != std::string_view::npos;
    if (ok) key.bytes[i / 2] = static_cast<std::uint8_t>(key.bytes[i / 2] << 4 | digit);
  }
  if (!ok) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("key \"{}\": must be 64 lower-case hexadecimal digits", hex.substr(0, 80)));
  }
  return key;
}

Result<KernelSources> KernelSources::Make(const KernelFamilies& families) {
  KernelSources sources;
  Scans scans;
  for (const KernelFamily& family : families.all()) {
    Result<Unit> unit = MakeUnit(family, scans);
    if (!unit) return Fail(unit.error());
    sources.units_.push_back(*std::move(unit));
  }
  return sources;
}

const KernelSources::Unit* KernelSources::Find(const FamilyName& family) const {
  for (const Unit& unit : units_) {
    if (unit.family == family) return &unit;
  }
  return nullptr;
}

Result<KeyRecord> MakeRequestRecord(const KernelSpec& spec, const KernelFamily& family,
                                    const KernelSources& sources) {
  if (Status status = CheckSpecValues(spec); !status) return Fail(status.error());
  if (spec.family != family.name) {
    return Fail(ErrorCode::kInvalidArgument, Format("the spec is of family \"{}\", not \"{}\"",
                                                    spec.family.view(), family.name.view()));
  }
  // `launch` and `limits` may be called only for specs that `check` accepts.
  if (const auto rejection = family.check(spec)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{}: {}", SpecName(spec), rejection->ToString()));
  }
  const KernelSources::Unit* unit = sources.Find(family.name);
  if (unit == nullptr || unit->files[0].file.name != family.source) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("kernel family \"{}\": source \"{}\" is unknown", family.name.view(),
                       family.source));
  }
  Result<std::vector<NormalOption>> options = RecordedOptions(family.options);
  if (!options) {
    return Fail(options.error().code,
                Format("kernel family \"{}\": {}", family.name.view(), options.error().message));
  }
  RequestFields fields{.spec = spec,
                       .revision = family.revision,
                       .render_revision = kRenderRevision,
                       .launch_abi = family.launch_abi,
                       .launch = family.launch(spec),
                       .limits = family.limits(spec),
                       .source = {unit->files[0].file.name, unit->files[0].digest},
                       .headers = {},
                       .options = *std::move(options)};
  fields.headers.reserve(unit->files.size() - 1);
  for (std::size_t i = 1; i < unit->files.size(); ++i) {
    fields.headers.push_back({unit->files[i].file.name, unit->files[i].digest});
  }
  return Keyed(EncodeRequestFields(fields));
}

Result<KeyRecord> MakeActionRecord(const ArtifactKey& request, const CompilerIdentity& compiler) {
  if (Status status = CheckCompilerIdentity(compiler); !status) return Fail(status.error());
  return Keyed(EncodeActionFields({request, compiler}));
}

Result<std::vector<KeyField>> DecodeKeyRecord(std::string_view bytes) {
  const Result<RequestFields> request = DecodeRequestFields(bytes);
  if (request) return ListRequest(*request);
  const Result<ActionFields> action = DecodeActionFields(bytes);
  if (action) return ListAction(*action);
  // The "record" field, at a fixed place, says which of the two kinds it is.
  constexpr std::string_view kAction = "action";
  const bool is_action = bytes.size() > 24 && bytes.substr(18, kAction.size()) == kAction;
  return Fail(is_action ? action.error() : request.error());
}

Result<KernelSpec> SpecOfRequestRecord(std::string_view bytes) {
  const Result<RequestFields> fields = DecodeRequestFields(bytes);
  if (!fields) return Fail(fields.error());
  return fields->spec;
}

Result<std::vector<KeyDifference>> DiffKeyRecords(std::string_view wanted,
                                                  std::string_view stored) {
  const Result<std::vector<KeyField>> want = DecodeKeyRecord(wanted);
  if (!want) return Fail(want.error());
  const Result<std::vector<KeyField>> have = DecodeKeyRecord(stored);
  if (!have) return Fail(have.error());
  std::map<std::string_view, std::string_view> by_name;
  for (const KeyField& field : *have) by_name[field.name] = field.value;
  std::vector<KeyDifference> differences;
  for (const KeyField& field : *want) {
    const auto it = by_name.find(field.name);
    const std::string_view other = it == by_name.end() ? "" : it->second;
    if (other != field.value) differences.push_back({field.name, field.value, std::string(other)});
    if (it != by_name.end()) by_name.erase(it);
  }
  for (const KeyField& field : *have) {
    if (by_name.count(field.name) != 0) differences.push_back({field.name, "", field.value});
  }
  return differences;
}

std::string KernelSymbol(const KernelSpec& spec, const ArtifactKey& request) {
  return Format("tw_{}_{}", spec.family.view(), request.Hex().substr(0, 16));
}

}  // namespace tilewright
