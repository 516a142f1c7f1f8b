#include "tilewright/bundle.h"

#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

#include "artifact/bundle/bundle_impl.h"
#include "artifact/key_record.h"
#include "core/text.h"

namespace tilewright {
namespace {

using bundle_format::Blob;
using bundle_format::Record;

// Aligned as in the file, so that a cubin can be passed to the driver in place.
struct FreeCopy {
  void operator()(char* bytes) const {
    ::operator delete (bytes, std::align_val_t{bundle_format::kAlignment});
  }
};
using Copy = std::unique_ptr<char, FreeCopy>;

Copy NewCopy(std::uint64_t size) {
  return Copy(static_cast<char*>(
      ::operator new (size, std::align_val_t{bundle_format::kAlignment}, std::nothrow)));
}

}  // namespace

Bundle::Impl::~Impl() {
  if (fd < 0) return;
  for (std::uint32_t blob = 0; payloads != nullptr && blob < header.blob_count; ++blob) {
    FreeCopy()(const_cast<char*>(payloads[blob].load(std::memory_order_relaxed)));
  }
  ::close(fd);
}

Result<std::string_view> Bundle::Impl::Payload(std::uint32_t blob,
                                               std::optional<Sha256Digest>* found) const {
  if (blob == bundle_format::kNoBlob) return std::string_view();
  const Blob place = index.BlobAt(blob);
  std::atomic<const char*>& kept = payloads[blob];
  if (const char* const bytes = kept.load(std::memory_order_acquire)) {
    return std::string_view(bytes, place.size);
  }
  Copy copy;
  const char* bytes = memory.data() + place.offset;
  if (fd >= 0) {
    copy = NewCopy(place.size);
    if (copy == nullptr) {
      return Fail(ErrorCode::kOutOfMemory, Format("no memory for {} bytes", place.size));
    }
    if (const Status read = Read(place.offset, {copy.get(), place.size}); !read) {
      return Fail(read.error());
    }
    bytes = copy.get();
  }
  const Result<Sha256Digest> digest = Sha256(std::string_view(bytes, place.size));
  if (!digest) return Fail(digest.error());
  if (found != nullptr) *found = *digest;
  if (*digest != place.digest) return Fail(ErrorCode::kCorrupt, "digest differs");
  const char* first = nullptr;
  if (kept.compare_exchange_strong(first, bytes, std::memory_order_acq_rel)) {
    (void)copy.release();
  } else {
    bytes = first;
  }
  return std::string_view(bytes, place.size);
}

Error Bundle::Impl::PartError(std::size_t i, std::string_view part, const Error& error) const {
  if (error.code != ErrorCode::kCorrupt) return EntryError(i, error.code, error.message);
  return EntryError(i, ErrorCode::kCorrupt,
                    error.message == "digest differs"
                        ? Format("payload digest of its {} differs", part)
                        : Format("payload of its {}: {}", part, error.message));
}

Result<Bundle::Impl::Parts> Bundle::Impl::Payloads(std::size_t i) const {
  const Record record = index.RecordAt(i);
  Parts parts;
  const struct {
    const char* name;
    std::uint32_t blob;
    std::string_view& bytes;
  } all[] = {{"description", record.description, parts.description},
             {"cubin", record.cubin, parts.cubin},
             {"PTX", record.ptx, parts.ptx},
             {"source", record.source, parts.source}};
  for (const auto& part : all) {
    const Result<std::string_view> bytes = Payload(part.blob);
    if (!bytes) return Fail(PartError(i, part.name, bytes.error()));
    part.bytes = *bytes;
  }
  return parts;
}

ArtifactKey Bundle::Impl::KeyAt(std::size_t i) const {
  ArtifactKey key;
  std::memcpy(key.bytes.data(), index.KeyAt(i).data(), key.bytes.size());
  return key;
}

Error Bundle::Impl::EntryError(std::size_t i, ErrorCode code, std::string_view what) const {
  return AtBundle(path, {code, Format("entry {}: {}", KeyAt(i).Hex(), what)});
}

Result<ArtifactData> Bundle::Impl::Decode(std::size_t i, const Parts& parts) const {
  const Record record = index.RecordAt(i);
  const auto corrupt = [&](std::string_view what) {
    return Fail(EntryError(i, ErrorCode::kCorrupt, what));
  };
  const auto description = bundle_format::ParseDescription(parts.description);
  if (!description) return corrupt("description: " + description.error().message);
  ArtifactData data;
  data.request = KeyAt(i);
  data.request_record = description->request_record;
  data.action_record = description->action_record;
  const Result<Sha256Digest> request = Sha256(data.request_record);
  if (!request) return Fail(request.error());
  if (*request != data.request.bytes)
    return corrupt("the digest of its request record does not match");
  const Result<RequestFields> fields = DecodeRequestFields(data.request_record);
  if (!fields) {
    return Fail(EntryError(i, fields.error().code, "request record: " + fields.error().message));
  }
  data.spec = fields->spec;
  data.compiler = index.compat.compilers[record.compiler];
  Result<KeyRecord> action = MakeActionRecord(data.request, data.compiler);
  if (!action) return corrupt("compiler: " + action.error().message);
  if (action->bytes != data.action_record) {
    return corrupt("its action record is for another request or compiler");
  }
  data.action = action->key;
  if (fields->launch_abi != record.launch_abi || description->launch_abi != record.launch_abi ||
      description->min_driver != record.min_driver || description->launch != fields->launch ||
      data.spec.arch != record.arch) {
    return corrupt("index, description and request record disagree");
  }
  data.symbol = KernelSymbol(data.spec, data.request);
  data.launch = description->launch;
  data.launch_abi = record.launch_abi;
  data.resources = description->resources;
  data.min_driver = record.min_driver;
  data.cubin = parts.cubin;
  data.ptx = parts.ptx;
  data.source = parts.source;
  return data;
}

Bundle::Bundle(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bundle::~Bundle() = default;

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
    return Fail(
        AtBundle(path(), {ErrorCode::kInvalidArgument, Format("entry {} of {}", i, size())}));
  }
  const Record record = impl_->index.RecordAt(i);
  if (record.format != bundle_format::kEntryFormat) {
    return Fail(impl_->EntryError(i, ErrorCode::kUnsupported,
                                  Format("format: the entry has {}, this version reads {}",
                                         record.format, bundle_format::kEntryFormat)));
  }
  if (const Status length = impl_->CheckLength(); !length) {
    return Fail(impl_->EntryError(i, length.error().code, length.error().message));
  }
  const Result<Impl::Parts> parts = impl_->Payloads(i);
  if (!parts) return Fail(parts.error());
  return impl_->Decode(i, *parts);
}

}  // namespace tilewright
