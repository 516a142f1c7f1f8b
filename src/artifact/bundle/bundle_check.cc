// Which entries of a bundle a process can use, and whether the whole bundle is intact.

#include <set>
#include <utility>
#include <vector>

#include "artifact/bundle/bundle_impl.h"
#include "core/text.h"

namespace tilewright {
namespace {

using bundle_format::Blob;
using bundle_format::Record;

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

std::string BundleRefusal::ToString() const {
  if (field == "payload_digest") {
    return Format("{}: the entry has {}, its index says {}", field, have, need);
  }
  return Format("{}: the entry {} {}, but this process has {}", field,
                field == "min_driver" ? "needs" : "has", have, need);
}

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
    std::optional<Sha256Digest> found;
    const Result<std::string_view> bytes = impl_->Payload(blob, &found);
    if (bytes) continue;
    return BundleRefusal{"payload_digest", found ? HexOf(*found) : bytes.error().message,
                         HexOf(impl_->index.BlobAt(blob).digest)};
  }
  return std::nullopt;
}

Status Bundle::Impl::CheckOneForm() const {
  bundle_format::CompatBuilder builder;
  for (std::size_t i = 0; i < header.entry_count; ++i) {
    const Record record = index.RecordAt(i);
    builder.Add(record.arch, record.launch_abi, record.min_driver,
                index.compat.compilers[record.compiler]);
  }
  if (bundle_format::EncodeCompat(builder.Take()) != bundle_format::EncodeCompat(index.compat)) {
    return Fail(ErrorCode::kCorrupt, "the compat block lists something that no entry has");
  }
  std::set<Sha256Digest> digests;
  for (std::size_t k = 0; k < header.blob_count; ++k) {
    const Blob blob = index.BlobAt(k);
    if (!digests.insert(blob.digest).second) {
      return Fail(ErrorCode::kCorrupt, Format("the payload at {} is stored twice", blob.offset));
    }
  }
  return {};
}

Result<std::vector<bool>> Bundle::Impl::CheckBlobs(std::vector<std::string>& troubles) const {
  std::vector<bool> good(header.blob_count);
  std::string bytes;
  std::uint64_t end = header.payload_offset;
  for (std::uint32_t k = 0; k < header.blob_count; ++k) {
    const Blob blob = index.BlobAt(k);
    bytes.resize(blob.offset - end + blob.size);
    if (const Status read = Read(end, bytes); !read) return Fail(AtBundle(path, read.error()));
    const std::string_view all(bytes);
    if (all.substr(0, blob.offset - end).find_first_not_of('\0') != std::string_view::npos) {
      const Error error{ErrorCode::kCorrupt, Format("the padding at {} is not zero", end)};
      troubles.push_back(AtBundle(path, error).message);
    }
    const Result<Sha256Digest> digest = Sha256(all.substr(blob.offset - end));
    if (!digest) return Fail(AtBundle(path, digest.error()));
    good[k] = *digest == blob.digest;
    end = blob.offset + blob.size;
  }
  return good;
}

Status Bundle::Impl::CheckEntry(std::size_t i, const std::vector<bool>& good) const {
  const Record record = index.RecordAt(i);
  const std::pair<const char*, std::uint32_t> parts[] = {{"description", record.description},
                                                         {"cubin", record.cubin},
                                                         {"PTX", record.ptx},
                                                         {"source", record.source}};
  for (const auto& [name, blob] : parts) {
    if (blob == bundle_format::kNoBlob || good[blob]) continue;
    return Fail(PartError(i, name, {ErrorCode::kCorrupt, "digest differs"}));
  }
  // This version does not know what the description of a newer entry must contain.
  if (record.format != bundle_format::kEntryFormat) return {};
  const Blob place = index.BlobAt(record.description);
  std::string description(place.size, '\0');
  if (Status read = Read(place.offset, description); !read) return read;
  const Result<ArtifactData> data = Decode(i, {.description = description});
  return data ? Status() : Fail(data.error());
}

Bundle::VerifyResult Bundle::Verify() const {
  VerifyResult result;
  result.is_signed = signer().has_value();
  const auto trouble = [&](const Error& error) { result.troubles.push_back(error.message); };
  if (const Status length = impl_->CheckLength(); !length) {
    trouble(AtBundle(path(), length.error()));
    return result;
  }
  const Result<std::vector<bool>> good = impl_->CheckBlobs(result.troubles);
  if (!good) {
    trouble(good.error());
    return result;
  }
  for (std::size_t i = 0; i < size(); ++i) {
    if (const Status sound = impl_->CheckEntry(i, *good); !sound) {
      trouble(sound.error());
    } else if (impl_->index.RecordAt(i).format != bundle_format::kEntryFormat) {
      ++result.newer;
    } else {
      ++result.good;
    }
  }
  if (const Status one_form = impl_->CheckOneForm(); !one_form) {
    trouble(AtBundle(path(), one_form.error()));
  }
  return result;
}

}  // namespace tilewright
