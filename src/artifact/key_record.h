#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/compile_options.h"
#include "tilewright/artifact_key.h"

namespace tilewright {

/// Version of the schema, docs/artifact_key.md, of the records below.
inline constexpr std::uint32_t kKeySchema = 2;
/// Larger records are rejected; real ones are far smaller.
inline constexpr std::size_t kMaxRecordBytes = 256 * 1024;

using FileDigest = std::array<std::uint8_t, 32>;

/// The contents of a request record. Views point into what it was made or decoded from.
struct RequestFields {
  struct File {
    std::string_view name;
    FileDigest digest{};
  };
  KernelSpec spec;
  std::uint32_t revision = 0;
  std::uint32_t render_revision = 0;
  std::uint32_t launch_abi = 0;
  KernelLaunchShape launch;
  ResourceLimits limits;
  File source;
  std::vector<File> headers;          ///< by name, each once
  std::vector<NormalOption> options;  ///< as RecordedOptions
};

struct ActionFields {
  ArtifactKey request;
  CompilerIdentity compiler;
};

/// The canonical bytes. Pure; the fields must be valid (Check...).
std::string EncodeRequestFields(const RequestFields& fields);
std::string EncodeActionFields(const ActionFields& fields);
/// kInvalidArgument for an identity that does not distinguish compilers.
Status CheckCompilerIdentity(const CompilerIdentity& compiler);

/// The inverses. kCorrupt for bytes that the encoder cannot have written, kUnsupported for another
/// schema, or a word (type, epilogue, option) that only another version knows.
Result<RequestFields> DecodeRequestFields(std::string_view bytes);
Result<ActionFields> DecodeActionFields(std::string_view bytes);

}  // namespace tilewright
