#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/compiler.h"
#include "tilewright/kernel_family.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// The SHA-256 of a canonical record.
struct ArtifactKey {
  std::array<std::uint8_t, 32> bytes{};

  auto operator<=>(const ArtifactKey&) const = default;
  std::string Hex() const;  ///< 64 lower-case digits
};
Result<ArtifactKey> ParseArtifactKey(std::string_view hex);

/// A canonical record: tagged, typed, length-prefixed fields in a fixed order, every field always
/// present (docs/artifact_key.md, byte by byte). The digest of `bytes` is the key.
struct KeyRecord {
  std::string bytes;
  ArtifactKey key;
};

/// The request record: schema, family and its revision, the fields of the spec, digests of the
/// source and of every header it includes (directly or not) under their virtual names, options,
/// architecture, launch ABI, launch shape and resource limits. Contains nothing specific to this
/// machine, process or time. Pure; takes about 2 us, since `KernelSources` computes the source
/// digests once per family. Any thread.
///
/// kInvalidArgument, naming the culprit: a spec of another family, with an enumerator out of range,
/// or that the family's `check` rejects (with its reason); a family that `sources` lacks; an option
/// that is not allowed.
class KernelSources;
Result<KeyRecord> MakeRequestRecord(const KernelSpec& spec, const KernelFamily& family,
                                    const KernelSources& sources);

/// The action record: the request key and the compiler's identity. kInvalidArgument for an identity
/// without backend, version or build_id, because two compilers could then share a key.
Result<KeyRecord> MakeActionRecord(const ArtifactKey& request, const CompilerIdentity& compiler);

/// Digests of the source and header closure of each family, computed once. Immutable after Make.
class KernelSources {
 public:
  struct File {
    SourceFile file;
    std::array<std::uint8_t, 32> digest;
  };
  struct Unit {
    FamilyName family;
    std::vector<File> files;  ///< [0] the translation unit, then headers by name; without spec.cuh
  };

  /// Follows every #include from each family's source (docs/artifact_key.md, "Headers"). Views
  /// point into the families' files, which must outlive this. kInvalidArgument, naming the
  /// includer, for an include that matches no file or that cannot be followed.
  static Result<KernelSources> Make(const KernelFamilies& families);
  const Unit* Find(const FamilyName& family) const;

 private:
  std::vector<Unit> units_;
};

/// A field of a record in readable form: name as in the schema, value as text.
struct KeyField {
  std::string name;
  std::string value;
  bool operator==(const KeyField&) const = default;
};
/// The fields of a request or action record. Only what MakeRequestRecord or MakeActionRecord could
/// have written is accepted: kCorrupt for anything else, kUnsupported for another schema or a word
/// that only another version knows.
Result<std::vector<KeyField>> DecodeKeyRecord(std::string_view bytes);
/// The spec that a request record was made from. kCorrupt as above.
Result<KernelSpec> SpecOfRequestRecord(std::string_view bytes);

/// A field in which two records differ; "" where one lacks it.
struct KeyDifference {
  std::string field;
  std::string wanted;
  std::string stored;
};
/// Errors as DecodeKeyRecord.
Result<std::vector<KeyDifference>> DiffKeyRecords(std::string_view wanted, std::string_view stored);

/// Symbol of the kernel compiled for a request: "tw_" family "_" first 16 hex digits of the key.
std::string KernelSymbol(const KernelSpec& spec, const ArtifactKey& request);

/// All options for the compiler, in order: those common to all kernels, the family's, the
/// architecture, and the random seed derived from the key. docs/artifact_key.md lists them.
Result<std::vector<std::string>> CompilerOptions(const KernelSpec& spec, const KernelFamily& family,
                                                 const ArtifactKey& request);

}  // namespace tilewright
