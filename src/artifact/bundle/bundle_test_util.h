#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "artifact/bundle/bundle_format.h"
#include "core/random.h"
#include "core/sha256.h"
#include "tilewright/artifact_key.h"
#include "tilewright/bundle.h"

/// Bundles for tests and fuzzers; no library file includes this header.
namespace tilewright::test {

inline std::string RandomText(std::uint64_t seed, std::size_t size) {
  Random random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.Next() >> 56);
  return text;
}

/// Artifacts with real records and invented cubins; owns what they point at.
class SomeArtifacts {
 public:
  struct Choice {
    CudaArch arch{90, 'a'};
    std::uint32_t min_driver = 13000;
    CompilerIdentity compiler{"nvrtc", "13.0", "65be0db3", "13.0", "08d17e32"};
    std::optional<std::string> cubin;  ///< default: random bytes
    std::size_t cubin_bytes = 200;
    std::string ptx = ".version 9.0";
    std::string source = "extern \"C\" __global__ void f();";
  };

  SomeArtifacts() {
    KernelFamily family;
    family.name = "fake";
    family.launch_abi = 3;
    family.source = "ops/fake/cuda/fake.cu";
    family.files = kFiles;
    family.check = [](const KernelSpec&) { return std::optional<Rejection>(); };
    family.launch = [](const KernelSpec&) { return KernelLaunchShape{128, 4096}; };
    family.limits = [](const KernelSpec&) { return ResourceLimits{}; };
    family.catalog = [](CudaArch) { return std::vector<KernelSpec>(); };
    const Status added = families_.Add(family);
    if (!added) problem_ = added.error().message;
    Result<KernelSources> sources = KernelSources::Make(families_);
    if (!sources) {
      problem_ = sources.error().message;
    } else {
      sources_ = std::move(*sources);
    }
  }

  /// The artifact of the spec with param0 = `number`; another number, another request key.
  ArtifactData Make(std::int32_t number, const Choice& choice) {
    ArtifactData data;
    data.spec.family = "fake";
    data.spec.arch = choice.arch;
    data.spec.params[0] = number;
    Result<KeyRecord> request = MakeRequestRecord(data.spec, families_.all()[0], sources_);
    Result<KeyRecord> action = request ? MakeActionRecord(request->key, choice.compiler) : request;
    if (!action) {
      problem_ = action.error().message;
      return data;
    }
    data.request = request->key;
    data.action = action->key;
    data.request_record = Keep(std::move(request->bytes));
    data.action_record = Keep(std::move(action->bytes));
    data.compiler = choice.compiler;
    data.symbol = KernelSymbol(data.spec, data.request);
    data.launch = {128, 4096};
    data.launch_abi = 3;
    data.resources.registers = 100 + static_cast<std::uint32_t>(number);
    data.resources.spill_store_bytes = data.resources.spill_load_bytes = 0;
    data.min_driver = choice.min_driver;
    data.compile_ms = 12.5;
    data.cubin =
        Keep(choice.cubin ? *choice.cubin
                          : RandomText(static_cast<std::uint64_t>(number) + 1, choice.cubin_bytes));
    data.ptx = Keep(choice.ptx);
    data.source = Keep(choice.source);
    data.log = "ptxas info: 1 ms";
    return data;
  }
  ArtifactData Make(std::int32_t number) { return Make(number, Choice()); }

  std::vector<ArtifactData> MakeSeveral(std::int32_t count) {
    std::vector<ArtifactData> all;
    for (std::int32_t i = 0; i < count; ++i) all.push_back(Make(i));
    return all;
  }

  /// "" or why Make does not work.
  const std::string& problem() const { return problem_; }
  std::string_view Keep(std::string text) { return strings_.emplace_back(std::move(text)); }

 private:
  static constexpr std::array<SourceFile, 1> kFiles{
      SourceFile{"ops/fake/cuda/fake.cu", "#include \"spec.cuh\"\n"}};
  KernelFamilies families_;
  KernelSources sources_;
  std::deque<std::string> strings_;
  std::string problem_;
};

/// Makes the digests of a changed bundle right again as far as its sizes allow, so that a test
/// reaches what they guard.
inline void Reseal(std::string& bundle) {
  namespace f = bundle_format;
  if (bundle.size() < f::kHeaderBytes) return;
  const auto put = [&](std::size_t at, std::string_view bytes) {
    const auto digest = Sha256(bytes);
    if (digest) std::memcpy(bundle.data() + at, digest->data(), digest->size());
  };
  const auto content = f::Load<std::uint64_t>(bundle.data() + f::kContentBytesAt);
  const auto index = f::Load<std::uint64_t>(bundle.data() + f::kIndexBytesAt);
  const std::uint64_t blobs =
      std::uint64_t{f::Load<std::uint32_t>(bundle.data() + f::kBlobCountAt)} * f::kBlobBytes;
  if (index <= bundle.size() - f::kHeaderBytes && blobs <= index) {
    const std::size_t end = f::kHeaderBytes + index;
    for (std::size_t at = end - blobs; at < end; at += f::kBlobBytes) {
      const auto offset = f::Load<std::uint64_t>(bundle.data() + at);
      const auto size = f::Load<std::uint64_t>(bundle.data() + at + 8);
      if (offset <= bundle.size() && size <= bundle.size() - offset && offset <= content) {
        put(at + 16, std::string_view(bundle).substr(offset, size));
      }
    }
    put(f::kIndexDigestAt, std::string_view(bundle).substr(f::kHeaderBytes, index));
  }
  if (const auto manifest = f::ManifestDigest(bundle)) {
    std::memcpy(bundle.data() + f::kManifestDigestAt, manifest->data(), manifest->size());
  }
}

/// Opens the bytes and reads everything. "" where all of it is sound, else the first trouble.
inline std::string Trouble(std::string_view bytes) {
  const auto bundle = Bundle::FromBytes(bytes);
  if (!bundle) return bundle.error().message;
  for (std::size_t i = 0; i < (*bundle)->size(); ++i) {
    const Bundle::Entry entry = (*bundle)->entry(i);
    if ((*bundle)->Find(entry.request) != i) return "Find does not find an entry";
    static_cast<void>((*bundle)->Check(i, {1, 90, 12000}));
    if (const auto data = (*bundle)->Load(i); !data) return data.error().message;
  }
  const Bundle::VerifyResult verified = (*bundle)->Verify();
  return verified.troubles.empty() ? "" : verified.troubles[0];
}

}  // namespace tilewright::test
