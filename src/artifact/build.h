#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tilewright/artifact.h"
#include "tilewright/artifact_key.h"
#include "tilewright/compiler.h"
#include "tilewright/kernel_family.h"

namespace tilewright {

/// Everything a compiler needs to make one kernel, and everything its entry says beside what the
/// compiler returns. Copies and moves freely; `unit` and `headers` point into the sources it was
/// made of and into `spec_header`.
struct CompileInput {
  KernelSpec spec;
  KeyRecord request;
  std::string symbol;
  std::shared_ptr<const std::string> spec_header;  ///< the text of "spec.cuh"
  SourceFile unit;
  std::vector<SourceFile> headers;   ///< "spec.cuh", then by name: exactly what the key covers
  std::vector<std::string> options;  ///< complete
  KernelLaunchShape launch;
  ResourceLimits limits;
  std::uint32_t launch_abi = 0;

  /// Views into this object.
  CompileJob Job() const;
};

/// Errors: kInvalidArgument where the family refuses the spec (with its words), and those of
/// MakeRequestRecord.
Result<CompileInput> PrepareCompile(const KernelSpec& spec, const KernelFamily& family,
                                    const KernelSources& sources);

/// The oldest driver that loads what this compiler makes, as cuDriverGetVersion counts: "13.0" is
/// 13000. 0 for a version that does not start with two numbers.
std::uint32_t MinDriver(const CompilerIdentity& compiler);

/// The entry file's bytes (EncodeArtifact). kInvalidArgument for an output without a cubin or an
/// identity that does not tell compilers apart.
Result<std::string> MakeEntry(const CompileInput& input, const CompilerIdentity& compiler,
                              const CompileOutput& output);

}  // namespace tilewright
