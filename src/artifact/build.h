#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tilewright/artifact.h"
#include "tilewright/artifact_key.h"
#include "tilewright/compiler.h"
#include "tilewright/kernel_family.h"

namespace tilewright {

/// Everything that a compiler needs to compile one kernel, and everything in its entry besides what
/// the compiler returns. May be copied and moved; `unit` and `headers` point into the sources that
/// it was made from and into `spec_header`.
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

  /// The job; its views point into this object.
  CompileJob Job() const;
};

/// Errors: kInvalidArgument if the family rejects the spec (with its reason), and those of
/// MakeRequestRecord.
Result<CompileInput> PrepareCompile(const KernelSpec& spec, const KernelFamily& family,
                                    const KernelSources& sources);

/// The oldest driver that loads this compiler's output, as cuDriverGetVersion gives it: "13.0" is
/// 13000. 0 for a version that does not start with two numbers.
std::uint32_t MinDriver(const CompilerIdentity& compiler);

/// The entry file's bytes (EncodeArtifact). kInvalidArgument for an output without a cubin or an
/// identity that does not distinguish compilers.
Result<std::string> MakeEntry(const CompileInput& input, const CompilerIdentity& compiler,
                              const CompileOutput& output);

}  // namespace tilewright
