#include "tilewright/bundle.h"

#include <cstring>
#include <utility>

#include "core/text.h"
#include "artifact/bundle/bundle_impl.h"
#include "artifact/key_record.h"

namespace tilewright {
namespace {

using bundle_format::Blob;
using bundle_format::Record;

}  // namespace

std::string_view Bundle::Impl::Payload(std::uint32_t blob) const {
  if (blob == bundle_format::kNoBlob) return {};
  const Blob place = index.BlobAt(blob);
  return file.substr(place.offset, place.size);
}

Result<bool> Bundle::Impl::Recheck(std::uint32_t blob) const {
  const Result<Sha256Digest> digest = Sha256(Payload(blob));
  if (!digest) return Fail(digest.error());
  const bool good = *digest == index.BlobAt(blob).digest;
  states[blob].store(good ? BlobState::kGood : BlobState::kBad, std::memory_order_release);
  return good;
}

Result<bool> Bundle::Impl::IsGood(std::uint32_t blob) const {
  if (blob == bundle_format::kNoBlob) return true;
  const BlobState state = states[blob].load(std::memory_order_acquire);
  if (state == BlobState::kUnknown) return Recheck(blob);
  return state == BlobState::kGood;
}

Status Bundle::Impl::CheckPayloads(std::size_t i) const {
  const Record record = index.RecordAt(i);
  const std::pair<const char*, std::uint32_t> parts[] = {{"description", record.description},
                                                         {"cubin", record.cubin},
                                                         {"PTX", record.ptx},
                                                         {"source", record.source}};
  for (const auto& [name, blob] : parts) {
    const Result<bool> good = IsGood(blob);
    if (!good) return Fail(good.error());
    if (!*good) {
      return Fail(
          EntryError(i, ErrorCode::kCorrupt, Format("payload digest of its {} differs", name)));
    }
  }
  return {};
}

ArtifactKey Bundle::Impl::KeyAt(std::size_t i) const {
  ArtifactKey key;
  std::memcpy(key.bytes.data(), index.KeyAt(i).data(), key.bytes.size());
  return key;
}

Error Bundle::Impl::EntryError(std::size_t i, ErrorCode code, std::string_view what) const {
  return AtBundle(path, {code, Format("entry {}: {}", KeyAt(i).Hex(), what)});
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
                                  Format("format: the entry has {}, here is {}", record.format,
                                         bundle_format::kEntryFormat)));
  }
  if (const Status length = impl_->CheckLength(); !length) {
    return Fail(impl_->EntryError(i, length.error().code, length.error().message));
  }
  if (const Status payloads = impl_->CheckPayloads(i); !payloads) return Fail(payloads.error());
  return impl_->Decode(i, record);
}

}  // namespace tilewright
