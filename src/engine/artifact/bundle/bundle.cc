#include "tilewright/bundle.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "core/text.h"
#include "engine/artifact/bundle/bundle_format.h"
#include "engine/artifact/bundle/bundle_signature.h"
#include "engine/artifact/key_record.h"

namespace tilewright {
namespace {

using bundle_format::Blob;
using bundle_format::Header;
using bundle_format::Index;
using bundle_format::kHeaderBytes;
using bundle_format::kNoBlob;
using bundle_format::Record;

/// Whether a blob's bytes have their digest: found out once, when first needed. Threads that come
/// together may each find it out; they find the same.
enum class BlobState : std::uint8_t { kUnknown, kGood, kBad };

Error At(const std::string& path, Error error) {
  if (!path.empty()) error.message = path + ": " + error.message;
  return error;
}

Error IoError(const char* what) {
  const int code = errno;
  return {code == ENOENT || code == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
          Format("{}: {}", what, std::strerror(code))};
}

/// `size` bytes from `offset`, by read: a file that shrinks meanwhile is an error, not a signal.
Result<std::string> ReadAt(int fd, std::uint64_t offset, std::uint64_t size) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(IoError("cannot read"));
    if (got == 0) {
      return Fail(ErrorCode::kCorrupt, Format("it ends at {}, {} bytes from {} are needed",
                                              offset + done, size, offset));
    }
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

}  // namespace

struct Bundle::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (mapping != nullptr) ::munmap(mapping, file_bytes);
    if (fd >= 0) ::close(fd);
  }

  /// Takes header, index and signature; `file` is the whole of it for payloads.
  Status Adopt(std::string_view head_and_index, std::string_view signature,
               const OpenOptions& options) {
    Result<Index> parsed = bundle_format::ParseIndex(header, head_and_index.substr(kHeaderBytes));
    if (!parsed) return Fail(parsed.error());
    index = std::move(*parsed);
    if (!signature.empty()) {
      Result<Ed25519Public> key = CheckSignature(signature, header.manifest_digest);
      if (!key) return Fail(key.error());
      signer = *key;
    }
    if (Status trusted = CheckTrust(signer, options.trusted_keys); !trusted) return trusted;
    states = std::make_unique<std::atomic<BlobState>[]>(header.blob_count);
    return {};
  }

  Status OpenFile(const OpenOptions& options);

  /// kCorrupt if the file is not as long as it was: its pages may be gone.
  Status CheckLength() const {
    if (fd < 0) return {};
    struct stat now {};
    if (::fstat(fd, &now) != 0) return Fail(IoError("cannot stat"));
    if (static_cast<std::uint64_t>(now.st_size) == file_bytes) return {};
    return Fail(ErrorCode::kCorrupt, Format("it has {} bytes now and had {} when it was opened; "
                                            "replace a bundle by renaming another over it",
                                            now.st_size, file_bytes));
  }

  /// That EncodeBundle would have written this: the compat block has what entries have and no more,
  /// and no payload is there twice.
  Status CheckOneForm() const;

  std::string_view Payload(std::uint32_t k) const {
    if (k == kNoBlob) return {};
    const Blob blob = index.BlobAt(k);
    return file.substr(blob.offset, blob.size);
  }

  /// The digest that the bytes of a blob have.
  Result<Sha256Digest> Computed(std::uint32_t k) const { return Sha256(Payload(k)); }

  Result<bool> IsGood(std::uint32_t k) const {
    if (k == kNoBlob) return true;
    BlobState state = states[k].load(std::memory_order_acquire);
    if (state == BlobState::kUnknown) {
      const Result<Sha256Digest> digest = Computed(k);
      if (!digest) return Fail(digest.error());
      state = *digest == index.BlobAt(k).digest ? BlobState::kGood : BlobState::kBad;
      states[k].store(state, std::memory_order_release);
    }
    return state == BlobState::kGood;
  }

  ArtifactKey KeyAt(std::size_t i) const {
    ArtifactKey key;
    std::memcpy(key.bytes.data(), index.KeyAt(i).data(), key.bytes.size());
    return key;
  }
  Error EntryError(std::size_t i, ErrorCode code, std::string_view what) const {
    return At(path, {code, Format("entry {}: {}", KeyAt(i).Hex(), what)});
  }

  /// The artifact of payloads whose digests are known to be right.
  Result<ArtifactData> Decode(std::size_t i, const Record& record) const;

  std::string path;
  int fd = -1;
  void* mapping = nullptr;
  std::uint64_t file_bytes = 0;
  std::string owned;      ///< header and index of an opened file
  std::string_view file;  ///< mapping or memory
  Header header;
  Index index;
  std::optional<Ed25519Public> signer;
  std::unique_ptr<std::atomic<BlobState>[]> states;
};

Status Bundle::Impl::OpenFile(const OpenOptions& options) {
  // O_NONBLOCK: a pipe put in its place must not hang us.
  fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return Fail(IoError("cannot open"));
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Fail(IoError("cannot stat"));
  if (!S_ISREG(info.st_mode)) return Fail(ErrorCode::kIo, "not a regular file");
  file_bytes = static_cast<std::uint64_t>(info.st_size);

  // Index and signature are read, not mapped: Find then touches no page that a truncation could
  // take away, and nothing of them changes under us.
  Result<std::string> head = ReadAt(fd, 0, std::min<std::uint64_t>(file_bytes, kHeaderBytes));
  if (!head) return Fail(head.error());
  Result<Header> parsed = bundle_format::ParseHeader(*head, file_bytes);
  if (!parsed) return Fail(parsed.error());
  header = *parsed;
  Result<std::string> rest = ReadAt(fd, kHeaderBytes, header.payload_offset - kHeaderBytes);
  if (!rest) return Fail(rest.error());
  owned = std::move(*head) + *rest;
  Result<std::string> signature = ReadAt(fd, header.content_bytes, header.signature_bytes);
  if (!signature) return Fail(signature.error());

  mapping = ::mmap(nullptr, file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapping == MAP_FAILED) {
    mapping = nullptr;
    return Fail(IoError("cannot map"));
  }
  file = {static_cast<const char*>(mapping), file_bytes};
  return Adopt(owned, *signature, options);
}

Status Bundle::Impl::CheckOneForm() const {
  bundle_format::CompatBuilder builder;
  for (std::size_t i = 0; i < header.entry_count; ++i) {
    const Record record = index.RecordAt(i);
    builder.Add(record.arch, record.launch_abi, record.min_driver,
                index.compat.compilers[record.compiler]);
  }
  if (bundle_format::EncodeCompat(builder.Take()) != bundle_format::EncodeCompat(index.compat)) {
    return Fail(ErrorCode::kCorrupt, "the compat block names what no entry has");
  }
  std::set<Sha256Digest> digests;
  for (std::size_t k = 0; k < header.blob_count; ++k) {
    const Blob blob = index.BlobAt(k);
    if (!digests.insert(blob.digest).second) {
      return Fail(ErrorCode::kCorrupt, Format("the payload at {} is there twice", blob.offset));
    }
  }
  return {};
}

Result<ArtifactData> Bundle::Impl::Decode(std::size_t i, const Record& record) const {
  const auto corrupt = [&](std::string_view what) {
    return Fail(EntryError(i, ErrorCode::kCorrupt, what));
  };
  const auto description = bundle_format::ParseDescription(Payload(record.description));
  if (!description) return corrupt("description: " + description.error().message);
  ArtifactData data;
  data.request = KeyAt(i);
  data.request_record = description->request_record;
  data.action_record = description->action_record;
  const Result<Sha256Digest> request = Sha256(data.request_record);
  if (!request) return Fail(request.error());
  if (*request != data.request.bytes) return corrupt("its request record has another digest");
  const Result<RequestFields> fields = DecodeRequestFields(data.request_record);
  if (!fields) {
    return Fail(EntryError(i, fields.error().code, "request record: " + fields.error().message));
  }
  data.spec = fields->spec;
  data.compiler = index.compat.compilers[record.compiler];
  Result<KeyRecord> action = MakeActionRecord(data.request, data.compiler);
  if (!action) return corrupt("compiler: " + action.error().message);
  if (action->bytes != data.action_record) {
    return corrupt("its action record is not of this request and compiler");
  }
  data.action = action->key;
  if (fields->launch_abi != record.launch_abi || description->launch_abi != record.launch_abi ||
      description->min_driver != record.min_driver || data.spec.arch != record.arch) {
    return corrupt("index, description and request record disagree");
  }
  data.symbol = KernelSymbol(data.spec, data.request);
  data.launch = description->launch;
  data.launch_abi = record.launch_abi;
  data.resources = description->resources;
  data.min_driver = record.min_driver;
  data.cubin = Payload(record.cubin);
  data.ptx = Payload(record.ptx);
  data.source = Payload(record.source);
  return data;
}

Bundle::Bundle(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bundle::~Bundle() = default;

Result<std::shared_ptr<const Bundle>> Bundle::Open(const std::string& path,
                                                   const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (const Status status = impl->OpenFile(options); !status) {
    return Fail(At(path, status.error()));
  }
  return std::shared_ptr<const Bundle>(new Bundle(std::move(impl)));
}

Result<std::shared_ptr<const Bundle>> Bundle::FromBytes(std::string_view bytes,
                                                        const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->file = bytes;
  impl->file_bytes = bytes.size();
  Result<Header> header =
      bundle_format::ParseHeader(bytes.substr(0, kHeaderBytes), impl->file_bytes);
  if (!header) return Fail(header.error());
  impl->header = *header;
  if (const Status status = impl->Adopt(bytes.substr(0, header->payload_offset),
                                        bytes.substr(header->content_bytes), options);
      !status) {
    return Fail(status.error());
  }
  return std::shared_ptr<const Bundle>(new Bundle(std::move(impl)));
}

const std::string& Bundle::path() const { return impl_->path; }
std::size_t Bundle::size() const { return impl_->header.entry_count; }
const BundleCompat& Bundle::compat() const { return impl_->index.compat; }
std::uint64_t Bundle::file_bytes() const { return impl_->file_bytes; }
std::string Bundle::Digest() const { return HexOf(impl_->header.manifest_digest); }
std::optional<Ed25519Public> Bundle::signer() const { return impl_->signer; }

Bundle::Entry Bundle::entry(std::size_t i) const {
  const Record record = impl_->index.RecordAt(i);
  const Blob cubin = impl_->index.BlobAt(record.cubin);
  Entry entry;
  entry.request = impl_->KeyAt(i);
  entry.offset = cubin.offset;
  entry.size = cubin.size;
  entry.arch = record.arch;
  entry.format = record.format;
  entry.launch_abi = record.launch_abi;
  entry.min_driver = record.min_driver;
  entry.compiler = record.compiler;
  entry.cubin_digest = cubin.digest;
  return entry;
}

std::optional<std::size_t> Bundle::Find(const ArtifactKey& request) const noexcept {
  const char* keys = impl_->index.keys.data();
  std::size_t first = 0, last = impl_->header.entry_count;
  while (first < last) {
    const std::size_t middle = first + (last - first) / 2;
    const int order = std::memcmp(keys + middle * bundle_format::kKeyBytes, request.bytes.data(),
                                  bundle_format::kKeyBytes);
    if (order == 0) return middle;
    if (order < 0) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return std::nullopt;
}

Result<ArtifactData> Bundle::Load(std::size_t i) const {
  if (i >= size()) {
    return Fail(At(path(), {ErrorCode::kInvalidArgument, Format("entry {} of {}", i, size())}));
  }
  const Record record = impl_->index.RecordAt(i);
  if (record.format != bundle_format::kEntryFormat) {
    return Fail(impl_->EntryError(i, ErrorCode::kUnsupported,
                                  Format("format: the entry has {}, here is {}", record.format,
                                         bundle_format::kEntryFormat)));
  }
  if (const Status length = impl_->CheckLength(); !length) {
    return Fail(impl_->EntryError(i, length.error().code, length.error().message));
  }
  const std::pair<const char*, std::uint32_t> parts[] = {{"description", record.description},
                                                         {"cubin", record.cubin},
                                                         {"PTX", record.ptx},
                                                         {"source", record.source}};
  for (const auto& [name, blob] : parts) {
    const Result<bool> good = impl_->IsGood(blob);
    if (!good) return Fail(good.error());
    if (!*good) {
      return Fail(impl_->EntryError(i, ErrorCode::kCorrupt,
                                    Format("payload digest of its {} differs", name)));
    }
  }
  return impl_->Decode(i, record);
}

Bundle::VerifyResult Bundle::Verify() const {
  VerifyResult result;
  result.is_signed = signer().has_value();
  const auto trouble = [&](const Error& error) { result.troubles.push_back(error.message); };
  if (const Status length = impl_->CheckLength(); !length) {
    trouble(At(path(), length.error()));
    return result;
  }
  // Again, whatever was found before: the disk may have changed its mind.
  std::uint64_t end = impl_->header.payload_offset;
  for (std::uint32_t k = 0; k < impl_->header.blob_count; ++k) {
    const Blob blob = impl_->index.BlobAt(k);
    if (impl_->file.substr(end, blob.offset - end).find_first_not_of('\0') !=
        std::string_view::npos) {
      trouble(At(path(), {ErrorCode::kCorrupt, Format("the padding at {} is not zero", end)}));
    }
    end = blob.offset + blob.size;
    const Result<Sha256Digest> digest = impl_->Computed(k);
    const bool good = digest && *digest == blob.digest;
    impl_->states[k].store(good ? BlobState::kGood : BlobState::kBad, std::memory_order_release);
  }
  for (std::size_t i = 0; i < size(); ++i) {
    if (const Result<ArtifactData> data = Load(i)) {
      ++result.good;
    } else {
      trouble(data.error());
    }
  }
  if (const Status one_form = impl_->CheckOneForm(); !one_form) {
    trouble(At(path(), one_form.error()));
  }
  return result;
}

std::string BundleRefusal::ToString() const {
  if (field == "payload_digest") {
    return Format("{}: the entry has {}, its index says {}", field, have, need);
  }
  return Format("{}: the entry {} {}, here is {}", field, field == "min_driver" ? "needs" : "has",
                have, need);
}

namespace {

std::optional<BundleRefusal> Compare(std::uint32_t launch_abi, CudaArch arch,
                                     std::uint32_t min_driver, const BundleNeeds& needs) {
  if (needs.launch_abi != 0 && launch_abi != needs.launch_abi) {
    return BundleRefusal{"launch_abi", Format("{}", launch_abi), Format("{}", needs.launch_abi)};
  }
  if (needs.compute_capability != 0 && !arch.RunsOn(needs.compute_capability)) {
    return BundleRefusal{"arch", arch.ToString(),
                         Format("compute capability {}.{}", needs.compute_capability / 10,
                                needs.compute_capability % 10)};
  }
  if (needs.driver != 0 && min_driver > needs.driver) {
    return BundleRefusal{"min_driver", Format("{}", min_driver), Format("{}", needs.driver)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<BundleRefusal> Bundle::Check(const ArtifactData& artifact, const BundleNeeds& needs) {
  return Compare(artifact.launch_abi, artifact.spec.arch, artifact.min_driver, needs);
}

std::optional<BundleRefusal> Bundle::Check(std::size_t i, const BundleNeeds& needs) const {
  const Record record = impl_->index.RecordAt(i);
  if (record.format != bundle_format::kEntryFormat) {
    return BundleRefusal{"format", Format("{}", record.format),
                         Format("{}", bundle_format::kEntryFormat)};
  }
  if (auto refusal = Compare(record.launch_abi, record.arch, record.min_driver, needs)) {
    return refusal;
  }
  if (const Status length = impl_->CheckLength(); !length) {
    return BundleRefusal{"payload_digest", "a truncated payload", "the whole one"};
  }
  for (const std::uint32_t blob : {record.description, record.cubin, record.ptx, record.source}) {
    if (const Result<bool> good = impl_->IsGood(blob); good && *good) continue;
    const Result<Sha256Digest> digest = impl_->Computed(blob);
    return BundleRefusal{"payload_digest", digest ? HexOf(*digest) : "none",
                         HexOf(impl_->index.BlobAt(blob).digest)};
  }
  return std::nullopt;
}

}  // namespace tilewright
