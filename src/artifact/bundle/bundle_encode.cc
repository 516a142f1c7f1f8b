#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "artifact/bundle/bundle_format.h"
#include "artifact/bundle/bundle_signature.h"
#include "artifact/key_record.h"
#include "core/atomic_file.h"
#include "core/text.h"
#include "tilewright/bundle.h"

namespace tilewright {
namespace {

using bundle_format::Append;
using bundle_format::Blob;
using bundle_format::BytesOf;
using bundle_format::Record;

tl::unexpected<Error> Bad(const ArtifactData& artifact, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument,
              Format("artifact {} ({}): {}", artifact.request.Hex(), SpecName(artifact.spec), why));
}

/// A bundle identifies an artifact by its records, so the artifact must agree with them.
Status CheckArtifact(const ArtifactData& artifact) {
  if (artifact.cubin.empty()) return Bad(artifact, "it has no cubin");
  const Result<Sha256Digest> request = Sha256(artifact.request_record);
  if (!request) return Fail(request.error());
  if (*request != artifact.request.bytes) {
    return Bad(artifact, "the digest of the request record is not the request key");
  }
  const Result<RequestFields> fields = DecodeRequestFields(artifact.request_record);
  if (!fields) return Bad(artifact, "request record: " + fields.error().message);
  if (fields->spec != artifact.spec) return Bad(artifact, "the request record is for another spec");
  if (fields->launch_abi != artifact.launch_abi) {
    return Bad(artifact, Format("launch ABI {}, but its request record says {}",
                                artifact.launch_abi, fields->launch_abi));
  }
  if (artifact.launch != fields->launch) {
    return Bad(artifact,
               Format("launched with {} threads and {} bytes of dynamic shared memory, its "
                      "request record says {} and {}",
                      artifact.launch.threads, artifact.launch.dynamic_smem_bytes,
                      fields->launch.threads, fields->launch.dynamic_smem_bytes));
  }
  if (artifact.symbol != KernelSymbol(artifact.spec, artifact.request)) {
    return Bad(artifact, Format("the symbol is \"{}\", but its request's is \"{}\"",
                                artifact.symbol, KernelSymbol(artifact.spec, artifact.request)));
  }
  const Result<KeyRecord> action = MakeActionRecord(artifact.request, artifact.compiler);
  if (!action) return Bad(artifact, "compiler: " + action.error().message);
  if (action->bytes != artifact.action_record || action->key != artifact.action) {
    return Bad(artifact, "the action record is for another request key or compiler");
  }
  return {};
}

/// Builds the payload region. Blobs keep their order, and equal blobs get the same number.
class Blobs {
 public:
  Result<std::uint32_t> Put(std::string_view bytes) {
    if (bytes.empty()) return bundle_format::kNoBlob;
    const Result<Sha256Digest> digest = Sha256(bytes);
    if (!digest) return Fail(digest.error());
    const auto [place, is_new] =
        numbers_.try_emplace(*digest, static_cast<std::uint32_t>(blobs_.size()));
    if (is_new) {
      if (blobs_.size() >= bundle_format::kNoBlob) {
        return Fail(ErrorCode::kInvalidArgument, "more than 2^32 - 1 payloads");
      }
      blobs_.push_back({0, bytes.size(), *digest});
      payloads_.push_back(bytes);
    }
    return place->second;
  }

  std::size_t size() const { return blobs_.size(); }
  /// Gives every blob its offset in a file whose payload region starts at `start`; returns its end.
  std::uint64_t Place(std::uint64_t start) {
    std::uint64_t end = start;
    for (Blob& blob : blobs_) {
      blob.offset = bundle_format::AlignUp(end);
      end = blob.offset + blob.size;
    }
    return end;
  }
  void AppendTable(std::string& out) const {
    for (const Blob& blob : blobs_) bundle_format::AppendBlob(out, blob);
  }
  void AppendPayloads(std::string& out) const {
    for (std::size_t k = 0; k < blobs_.size(); ++k) {
      out.resize(blobs_[k].offset, '\0');
      out += payloads_[k];
    }
  }

 private:
  std::map<Sha256Digest, std::uint32_t> numbers_;
  std::vector<Blob> blobs_;
  std::vector<std::string_view> payloads_;
};

BundleCompat CompatOf(std::span<const ArtifactData> artifacts) {
  bundle_format::CompatBuilder builder;
  for (const ArtifactData& artifact : artifacts) {
    builder.Add(artifact.spec.arch, artifact.launch_abi, artifact.min_driver, artifact.compiler);
  }
  return builder.Take();
}

Result<Record> AddEntry(const ArtifactData& artifact, const BundleCompat& compat,
                        const BundleWriteOptions& options, std::deque<std::string>& descriptions,
                        Blobs& blobs) {
  Record record;
  record.format = bundle_format::kEntryFormat;
  record.arch = artifact.spec.arch;
  record.launch_abi = artifact.launch_abi;
  record.min_driver = artifact.min_driver;
  record.compiler = static_cast<std::uint32_t>(
      std::lower_bound(compat.compilers.begin(), compat.compilers.end(), artifact.compiler) -
      compat.compilers.begin());
  descriptions.push_back(
      bundle_format::EncodeDescription({.launch = artifact.launch,
                                        .launch_abi = artifact.launch_abi,
                                        .min_driver = artifact.min_driver,
                                        .resources = artifact.resources,
                                        .request_record = artifact.request_record,
                                        .action_record = artifact.action_record}));
  const std::pair<std::uint32_t*, std::string_view> parts[] = {
      {&record.description, descriptions.back()},
      {&record.cubin, artifact.cubin},
      {&record.ptx, options.with_ptx ? artifact.ptx : std::string_view()},
      {&record.source, options.with_source ? artifact.source : std::string_view()}};
  for (const auto& [number, bytes] : parts) {
    const Result<std::uint32_t> put = blobs.Put(bytes);
    if (!put) return Fail(put.error());
    *number = *put;
  }
  return record;
}

/// Header, index and payloads. `index` lacks its blob table.
Result<std::string> Assemble(std::string index, std::size_t entries, std::size_t compat_bytes,
                             Blobs& blobs) {
  const std::uint64_t index_bytes = index.size() + blobs.size() * bundle_format::kBlobBytes;
  const std::uint64_t payload = bundle_format::AlignUp(bundle_format::kHeaderBytes + index_bytes);
  const std::uint64_t content = blobs.Place(payload);
  blobs.AppendTable(index);
  const Result<Sha256Digest> index_digest = Sha256(index);
  if (!index_digest) return Fail(index_digest.error());

  std::string out;
  out.reserve(content + bundle_format::kSignatureBytes);
  out += bundle_format::kMagic;
  Append(out, bundle_format::kMajor);
  Append(out, bundle_format::kMinor);
  Append(out, content);
  Append(out, index_bytes);
  Append(out, payload);
  Append(out, static_cast<std::uint32_t>(entries));
  Append(out, static_cast<std::uint32_t>(blobs.size()));
  Append(out, static_cast<std::uint32_t>(compat_bytes));
  out.resize(bundle_format::kIndexDigestAt, '\0');
  out += BytesOf(*index_digest);
  const Result<Sha256Digest> manifest = bundle_format::ManifestDigest(out);
  if (!manifest) return Fail(manifest.error());
  out += BytesOf(*manifest);
  out.resize(bundle_format::kHeaderBytes, '\0');
  out += index;
  out.resize(payload, '\0');
  blobs.AppendPayloads(out);
  return out;
}

}  // namespace

Result<std::string> EncodeBundle(std::span<const ArtifactData> artifacts,
                                 const BundleWriteOptions& options) {
  if (artifacts.size() > std::numeric_limits<std::uint32_t>::max() / 4) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{} artifacts: a bundle can hold at most 2^30", artifacts.size()));
  }
  std::vector<std::size_t> order(artifacts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return artifacts[a].request < artifacts[b].request;
  });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ArtifactData& artifact = artifacts[order[i]];
    if (i > 0 && artifacts[order[i - 1]].request == artifact.request) {
      return Bad(artifact, "two artifacts with the same request key; a bundle can hold only one");
    }
    if (const Status sound = CheckArtifact(artifact); !sound) return Fail(sound.error());
  }

  const BundleCompat compat = CompatOf(artifacts);
  std::string index = bundle_format::EncodeCompat(compat);
  const std::size_t compat_bytes = index.size();
  if (compat_bytes > std::numeric_limits<std::uint32_t>::max()) {
    return Fail(ErrorCode::kInvalidArgument, "more than 4 GiB of compiler identities");
  }
  Blobs blobs;
  std::deque<std::string> descriptions;  // `blobs` has views of them
  std::string records;
  for (const std::size_t i : order) index += BytesOf(artifacts[i].request.bytes);
  for (const std::size_t i : order) {
    const Result<Record> record = AddEntry(artifacts[i], compat, options, descriptions, blobs);
    if (!record) return Fail(record.error());
    bundle_format::AppendRecord(records, *record);
  }
  index += records;
  Result<std::string> bundle = Assemble(std::move(index), artifacts.size(), compat_bytes, blobs);
  if (!bundle || options.sign_key_file.empty()) return bundle;
  if (const Status done = AppendSignature(*bundle, options.sign_key_file); !done) {
    return Fail(done.error());
  }
  return bundle;
}

Result<std::string> BundleDigest(std::string_view bundle) {
  const Result<bundle_format::Header> header = bundle_format::ParseHeader(bundle, bundle.size());
  if (!header) return Fail(header.error());
  return HexOf(header->manifest_digest);
}

Status WriteBundleFile(const std::string& path, std::string_view bytes) {
  return WriteFileAtomic(path, bytes);
}

Result<std::string> MergeBundles(std::span<const Bundle* const> bundles,
                                 const BundleWriteOptions& options) {
  std::vector<ArtifactData> artifacts;
  std::map<ArtifactKey, std::size_t> seen;
  for (const Bundle* bundle : bundles) {
    for (std::size_t i = 0; i < bundle->size(); ++i) {
      Result<ArtifactData> artifact = bundle->Load(i);
      if (!artifact) return Fail(artifact.error());
      const auto [place, is_new] = seen.try_emplace(artifact->request, artifacts.size());
      if (is_new) {
        artifacts.push_back(std::move(*artifact));
        continue;
      }
      const ArtifactData& first = artifacts[place->second];
      if (first.action != artifact->action || first.cubin != artifact->cubin) {
        return Bad(*artifact, Format("two bundles hold different builds of it, by {} and by {}",
                                     first.compiler.ToString(), artifact->compiler.ToString()));
      }
    }
  }
  return EncodeBundle(artifacts, options);
}

}  // namespace tilewright
