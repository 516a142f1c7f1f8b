#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/artifact_key.h"
#include "tilewright/compiler.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// A compiled kernel with everything known about it. Immutable; shared by handles. The views point
/// into the artifact (or the bundle it came from) and live as long as it does.
struct ArtifactData {
  KernelSpec spec;
  ArtifactKey request;
  ArtifactKey action;
  std::string_view request_record;
  std::string_view action_record;
  CompilerIdentity compiler;
  std::string symbol;
  KernelLaunchShape launch;
  std::uint32_t launch_abi = 0;
  ResourceUsage resources;
  std::uint32_t min_driver = 0;  ///< CUDA driver version as cuDriverGetVersion gives it: 13000
  double compile_ms = 0;         ///< 0 where unknown (in bundles)
  std::string_view cubin;
  std::string_view ptx;     ///< may be empty (bundles without it)
  std::string_view source;  ///< the rendered spec.cuh followed by the translation unit
  std::string_view log;
};

/// The bytes of the entry file for `data` (docs/artifact_entry.md): self-describing, checksummed,
/// little endian. `spec`, `request`, `action` and `compiler` are taken from the records. Equal data
/// give equal bytes. kInvalidArgument for anything that DecodeArtifact would refuse: records that
/// do not decode or do not belong together, an empty cubin, a symbol or launch ABI that differs
/// from the request's.
Result<std::string> EncodeArtifact(const ArtifactData& data);

/// The inverse of EncodeArtifact, safe for arbitrary bytes: returns the data; kCorrupt with the
/// reason ("cubin digest differs", "header length 4096 beyond the file's 1200 bytes"); or
/// kUnsupported for another major version or key schema, or an unknown part that is marked as
/// required. Checks every digest, both records against their keys, and that the records agree with
/// the header. The views point into `bytes`.
Result<ArtifactData> DecodeArtifact(std::string_view bytes);

/// Whether a file that begins with these bytes (4 are enough) is an entry file, intact or not.
bool IsEntryFile(std::string_view bytes);

}  // namespace tilewright
