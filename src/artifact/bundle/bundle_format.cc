#include "artifact/bundle/bundle_format.h"

#include <algorithm>
#include <utility>

#include "artifact/field_codec.h"
#include "core/text.h"

namespace tilewright::bundle_format {
namespace {

constexpr std::string_view kManifestDomain = "tilewright bundle manifest 1\n";

tl::unexpected<Error> Corrupt(std::string message) {
  return Fail(ErrorCode::kCorrupt, std::move(message));
}

bool AllZero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

Sha256Digest DigestAt(std::string_view bytes, std::size_t offset) {
  Sha256Digest digest;
  std::memcpy(digest.data(), bytes.data() + offset, digest.size());
  return digest;
}

/// Reads values from the front of `left`; once one does not fit, good() is false and zeros follow.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T Number() {
    if (!Has(sizeof(T))) return 0;
    const T value = Load<T>(left_.data());
    left_.remove_prefix(sizeof(T));
    return value;
  }
  std::string_view Text(std::uint64_t size) {
    if (!Has(size)) return {};
    const std::string_view text = left_.substr(0, size);
    left_.remove_prefix(size);
    return text;
  }
  /// A count of items of at least `each` bytes; a count that cannot fit is rejected before anything
  /// is allocated for it.
  std::uint32_t Count(std::size_t each) {
    const auto count = Number<std::uint32_t>();
    good_ = good_ && count <= left_.size() / each;
    return good_ ? count : 0;
  }
  bool good() const { return good_; }
  std::string_view left() const { return left_; }

 private:
  bool Has(std::uint64_t size) {
    good_ = good_ && size <= left_.size();
    return good_;
  }
  std::string_view left_;
  bool good_ = true;
};

template <class T>
bool StrictlyAscending(const std::vector<T>& values) {
  return std::adjacent_find(values.begin(), values.end(),
                            [](const T& a, const T& b) { return a >= b; }) == values.end();
}

Result<BundleCompat> ParseCompat(std::string_view bytes) {
  Reader in(bytes);
  BundleCompat compat;
  compat.archs.resize(in.Count(4));
  for (CudaArch& arch : compat.archs) {
    arch.number = in.Number<std::uint16_t>();
    arch.suffix = in.Number<std::uint16_t>();
    if (arch.suffix != 0 && arch.suffix != 'a' && arch.suffix != 'f') {
      return Corrupt(Format("compat block: invalid architecture suffix {}", arch.suffix));
    }
  }
  compat.launch_abis.resize(in.Count(4));
  for (std::uint32_t& abi : compat.launch_abis) abi = in.Number<std::uint32_t>();
  compat.lowest_driver = in.Number<std::uint32_t>();
  compat.highest_driver = in.Number<std::uint32_t>();
  compat.compilers.resize(in.Count(20));
  for (CompilerIdentity& compiler : compat.compilers) {
    for (std::string* text : {&compiler.backend, &compiler.version, &compiler.build_id,
                              &compiler.builtins_version, &compiler.builtins_build_id}) {
      *text = in.Text(in.Number<std::uint32_t>());
    }
  }
  if (!in.good() || in.left().size() >= 8 || !AllZero(in.left())) {
    return Corrupt("compat block: its size does not match its lists");
  }
  if (!StrictlyAscending(compat.archs) || !StrictlyAscending(compat.launch_abis) ||
      !StrictlyAscending(compat.compilers)) {
    return Corrupt("compat block: a list is not in ascending order");
  }
  return compat;
}

/// Checks the records against the compat block and the number of blobs; blobs are numbered in the
/// order in which the records first refer to them.
Status CheckRecords(const Header& header, const Index& index) {
  const BundleCompat& compat = index.compat;
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < header.entry_count; ++i) {
    if (i > 0 && index.KeyAt(i - 1) >= index.KeyAt(i)) {
      return Corrupt(
          Format("index: the keys of entries {} and {} are not in ascending order", i - 1, i));
    }
    const Record record = index.RecordAt(i);
    if (Load<std::uint32_t>(index.records.data() + i * kRecordBytes + 36) != 0) {
      return Corrupt(Format("index: entry {}: reserved bytes are not zero", i));
    }
    if (record.compiler >= compat.compilers.size()) {
      return Corrupt(Format("index: entry {}: compiler {} of {}", i, record.compiler,
                            compat.compilers.size()));
    }
    if (!std::binary_search(compat.archs.begin(), compat.archs.end(), record.arch) ||
        !std::binary_search(compat.launch_abis.begin(), compat.launch_abis.end(),
                            record.launch_abi) ||
        record.min_driver < compat.lowest_driver || record.min_driver > compat.highest_driver) {
      return Corrupt(Format("index: entry {} is not covered by the compat block", i));
    }
    if (record.description == kNoBlob || record.cubin == kNoBlob) {
      return Corrupt(Format("index: entry {} has no {}", i,
                            record.cubin == kNoBlob ? "cubin" : "description"));
    }
    for (const std::uint32_t blob : {record.description, record.cubin, record.ptx, record.source}) {
      if (blob == kNoBlob) continue;
      if (blob > next) return Corrupt(Format("index: entry {}: blob {} is out of order", i, blob));
      if (blob == next) ++next;
    }
  }
  if (next != header.blob_count) {
    return Corrupt(Format("index: {} blobs, of which {} are used", header.blob_count, next));
  }
  return {};
}

Status CheckBlobs(const Header& header, const Index& index) {
  std::uint64_t end = header.payload_offset;
  for (std::size_t k = 0; k < header.blob_count; ++k) {
    const Blob blob = index.BlobAt(k);
    // `end` is at most content_bytes here, which is limited by the file's size, so sums cannot
    // overflow.
    if (blob.offset != AlignUp(end) || blob.size == 0 || blob.offset > header.content_bytes ||
        blob.size > header.content_bytes - blob.offset) {
      return Corrupt(
          Format("index: blob {} of {} bytes at {} does not follow the one before it, "
                 "which ends at {}, or extends beyond the content's end at {}",
                 k, blob.size, blob.offset, end, header.content_bytes));
    }
    end = blob.offset + blob.size;
  }
  if (end != header.content_bytes) {
    return Corrupt(
        Format("index: the last blob ends at {}, the content at {}", end, header.content_bytes));
  }
  return {};
}

}  // namespace

Result<Sha256Digest> ManifestDigest(std::string_view header) {
  return Sha256({kManifestDomain, header.substr(0, kManifestDigestAt)});
}

Result<Header> ParseHeader(std::string_view bytes, std::uint64_t file_bytes) {
  if (bytes.size() < kHeaderBytes || file_bytes < kHeaderBytes) {
    return Corrupt(Format("{} bytes: shorter than a bundle's header of {}",
                          std::min<std::uint64_t>(bytes.size(), file_bytes), kHeaderBytes));
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return Corrupt("not a bundle: it does not start with TWBUNDLE");
  }
  Header header;
  header.major = Load<std::uint32_t>(bytes.data() + 8);
  header.minor = Load<std::uint32_t>(bytes.data() + 12);
  // Before everything else: another major version may have another layout and other digests.
  if (header.major != kMajor) {
    return Fail(ErrorCode::kUnsupported,
                Format("format: the bundle has {}.{}, this version reads {}.{}", header.major,
                       header.minor, kMajor, kMinor));
  }
  header.content_bytes = Load<std::uint64_t>(bytes.data() + kContentBytesAt);
  header.index_bytes = Load<std::uint64_t>(bytes.data() + kIndexBytesAt);
  header.payload_offset = Load<std::uint64_t>(bytes.data() + kPayloadOffsetAt);
  header.entry_count = Load<std::uint32_t>(bytes.data() + kEntryCountAt);
  header.blob_count = Load<std::uint32_t>(bytes.data() + kBlobCountAt);
  header.compat_bytes = Load<std::uint32_t>(bytes.data() + kCompatBytesAt);
  header.signature_bytes = Load<std::uint32_t>(bytes.data() + kSignatureBytesAt);
  header.index_digest = DigestAt(bytes, kIndexDigestAt);
  header.manifest_digest = DigestAt(bytes, kManifestDigestAt);

  const Result<Sha256Digest> manifest = ManifestDigest(bytes);
  if (!manifest) return Fail(manifest.error());
  if (*manifest != header.manifest_digest) return Corrupt("header: the manifest digest differs");
  if (!AllZero(bytes.substr(52, kIndexDigestAt - 52)) ||
      !AllZero(bytes.substr(kSignatureBytesAt + 4, kHeaderBytes - kSignatureBytesAt - 4))) {
    return Corrupt("header: reserved bytes are not zero");
  }
  if (header.signature_bytes != 0 && header.signature_bytes != kSignatureBytes) {
    return Corrupt(Format("header: a signature of {} bytes, neither 0 nor {}",
                          header.signature_bytes, kSignatureBytes));
  }
  if (header.content_bytes > file_bytes ||
      file_bytes - header.content_bytes != header.signature_bytes) {
    return Corrupt(Format("{} bytes, but the header says {} and {} of signature", file_bytes,
                          header.content_bytes, header.signature_bytes));
  }
  // 32-bit counts: the sum stays far below 2^64.
  const std::uint64_t want = std::uint64_t{header.compat_bytes} +
                             std::uint64_t{header.entry_count} * (kKeyBytes + kRecordBytes) +
                             std::uint64_t{header.blob_count} * kBlobBytes;
  if (header.index_bytes != want || header.payload_offset != AlignUp(kHeaderBytes + want) ||
      header.payload_offset > header.content_bytes) {
    return Corrupt(
        Format("header: {} entries and {} blobs take {} bytes of index; it says {}, "
               "payload from {} of {}",
               header.entry_count, header.blob_count, want, header.index_bytes,
               header.payload_offset, header.content_bytes));
  }
  return header;
}

Record Index::RecordAt(std::size_t i) const {
  const char* p = records.data() + i * kRecordBytes;
  Record record;
  record.format = Load<std::uint32_t>(p);
  record.arch.number = Load<std::uint16_t>(p + 4);
  record.arch.suffix = Load<std::uint16_t>(p + 6);
  record.launch_abi = Load<std::uint32_t>(p + 8);
  record.min_driver = Load<std::uint32_t>(p + 12);
  record.compiler = Load<std::uint32_t>(p + 16);
  record.description = Load<std::uint32_t>(p + 20);
  record.cubin = Load<std::uint32_t>(p + 24);
  record.ptx = Load<std::uint32_t>(p + 28);
  record.source = Load<std::uint32_t>(p + 32);
  return record;
}

Blob Index::BlobAt(std::size_t k) const {
  const std::string_view bytes = blobs.substr(k * kBlobBytes, kBlobBytes);
  return {Load<std::uint64_t>(bytes.data()), Load<std::uint64_t>(bytes.data() + 8),
          DigestAt(bytes, 16)};
}

Result<Index> ParseIndex(const Header& header, std::string_view bytes) {
  if (bytes.size() != header.payload_offset - kHeaderBytes) {
    return Corrupt(
        Format("index: {} bytes of {}", bytes.size(), header.payload_offset - kHeaderBytes));
  }
  const std::string_view body = bytes.substr(0, header.index_bytes);
  const Result<Sha256Digest> digest = Sha256(body);
  if (!digest) return Fail(digest.error());
  if (*digest != header.index_digest) return Corrupt("index: its digest differs");
  if (!AllZero(bytes.substr(header.index_bytes))) {
    return Corrupt("index: the padding after it is not zero");
  }
  Index index;
  Result<BundleCompat> compat = ParseCompat(body.substr(0, header.compat_bytes));
  if (!compat) return Fail(compat.error());
  index.compat = std::move(*compat);
  index.compat.format_major = header.major;
  index.compat.format_minor = header.minor;
  std::size_t at = header.compat_bytes;
  index.keys = body.substr(at, header.entry_count * kKeyBytes);
  at += index.keys.size();
  index.records = body.substr(at, header.entry_count * kRecordBytes);
  at += index.records.size();
  index.blobs = body.substr(at);
  if (const Status status = CheckRecords(header, index); !status) return Fail(status.error());
  if (const Status status = CheckBlobs(header, index); !status) return Fail(status.error());
  return index;
}

void CompatBuilder::Add(CudaArch arch, std::uint32_t launch_abi, std::uint32_t min_driver,
                        const CompilerIdentity& compiler) {
  archs_.insert(arch);
  launch_abis_.insert(launch_abi);
  drivers_.insert(min_driver);
  compilers_.insert(compiler);
}

BundleCompat CompatBuilder::Take() const {
  BundleCompat compat;
  compat.format_major = kMajor;
  compat.format_minor = kMinor;
  compat.archs.assign(archs_.begin(), archs_.end());
  compat.launch_abis.assign(launch_abis_.begin(), launch_abis_.end());
  compat.lowest_driver = drivers_.empty() ? 0 : *drivers_.begin();
  compat.highest_driver = drivers_.empty() ? 0 : *drivers_.rbegin();
  compat.compilers.assign(compilers_.begin(), compilers_.end());
  return compat;
}

std::string EncodeCompat(const BundleCompat& compat) {
  std::string out;
  Append(out, static_cast<std::uint32_t>(compat.archs.size()));
  for (const CudaArch& arch : compat.archs) {
    Append(out, arch.number);
    Append(out, arch.suffix);
  }
  Append(out, static_cast<std::uint32_t>(compat.launch_abis.size()));
  for (const std::uint32_t abi : compat.launch_abis) Append(out, abi);
  Append(out, compat.lowest_driver);
  Append(out, compat.highest_driver);
  Append(out, static_cast<std::uint32_t>(compat.compilers.size()));
  for (const CompilerIdentity& compiler : compat.compilers) {
    for (const std::string* text : {&compiler.backend, &compiler.version, &compiler.build_id,
                                    &compiler.builtins_version, &compiler.builtins_build_id}) {
      Append(out, static_cast<std::uint32_t>(text->size()));
      out += *text;
    }
  }
  out.resize((out.size() + 7) / 8 * 8, '\0');
  return out;
}

void AppendRecord(std::string& out, const Record& record) {
  Append(out, record.format);
  Append(out, record.arch.number);
  Append(out, record.arch.suffix);
  Append(out, record.launch_abi);
  Append(out, record.min_driver);
  Append(out, record.compiler);
  Append(out, record.description);
  Append(out, record.cubin);
  Append(out, record.ptx);
  Append(out, record.source);
  Append(out, std::uint32_t{0});
}

void AppendBlob(std::string& out, const Blob& blob) {
  Append(out, blob.offset);
  Append(out, blob.size);
  out += BytesOf(blob.digest);
}

namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

/// Calls `visit` with every number of a description, in the order of the file.
template <class D, class Visit>
void ForEachNumber(D& description, Visit&& visit) {
  visit(description.launch.threads);
  visit(description.launch.dynamic_smem_bytes);
  visit(description.launch_abi);
  visit(description.min_driver);
  visit(description.resources.registers);
  visit(description.resources.static_smem_bytes);
  visit(description.resources.constant_bytes);
  visit(description.resources.stack_bytes);
  visit(description.resources.spill_store_bytes);  // as in entry files: EncodeKnown
  visit(description.resources.spill_load_bytes);
  visit(description.resources.barriers);
}

}  // namespace

std::string EncodeDescription(const Description& description) {
  std::string out;
  ForEachNumber(description, Overloaded{[&](std::uint32_t number) { Append(out, number); },
                                        [&](const std::optional<std::uint32_t>& bytes) {
                                          Append(out, EncodeKnown(bytes));
                                        }});
  for (const std::string_view text : {description.request_record, description.action_record}) {
    Append(out, static_cast<std::uint32_t>(text.size()));
    out += text;
  }
  return out;
}

Result<Description> ParseDescription(std::string_view bytes) {
  Reader in(bytes);
  Description description;
  ForEachNumber(description,
                Overloaded{[&](std::uint32_t& number) { number = in.Number<std::uint32_t>(); },
                           [&](std::optional<std::uint32_t>& bytes) {
                             bytes = DecodeKnown(in.Number<std::uint32_t>());
                           }});
  for (std::string_view* text : {&description.request_record, &description.action_record}) {
    *text = in.Text(in.Number<std::uint32_t>());
  }
  if (!in.good() || !in.left().empty()) return Corrupt("its size does not match its texts");
  return description;
}

}  // namespace tilewright::bundle_format
