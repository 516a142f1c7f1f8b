#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "artifact/build.h"
#include "tilewright/artifact_key.h"
#include "tilewright/kernel_family.h"

namespace tilewright::test {

/// Everything that a request and an action key are made of, as values that a test can change one
/// at a time.
struct KeyInputs {
  KernelSpec spec;
  std::uint32_t revision = 3;
  std::uint32_t launch_abi = 2;
  KernelLaunchShape (*launch)(const KernelSpec&) = [](const KernelSpec& spec) {
    return KernelLaunchShape{32u * spec.warps, 1024u * spec.stages};
  };
  ResourceLimits (*limits)(const KernelSpec&) = [](const KernelSpec&) { return ResourceLimits{}; };
  std::string source = "keys/unit.cu";
  std::map<std::string, std::string> files;  ///< by virtual name
  std::vector<std::pair<std::string, std::string>> options;
  CompilerIdentity compiler;
};

/// A family of fixed text: keys/unit.cu reaches keys/inner.cuh, which reaches keys/deep.cuh, and,
/// as every kernel through spec.cuh, device/cuda/kernels/types.cuh. Nothing in it follows the
/// sources of the library, so that golden keys change with the schema alone.
KeyInputs FixedInputs();

/// The specs that golden keys and the matrix of processes are made of.
std::vector<KernelSpec> FixedSpecs();

/// A family made of `inputs`, with what it points into.
class InputFamily {
 public:
  explicit InputFamily(const KeyInputs& inputs);
  InputFamily(const InputFamily&) = delete;
  InputFamily& operator=(const InputFamily&) = delete;
  const KernelFamily& get() const { return family_; }

 private:
  KeyInputs inputs_;
  std::vector<SourceFile> files_;
  std::vector<CompileOption> options_;
  KernelFamily family_;
};

Result<KeyRecord> RequestOf(const KeyInputs& inputs);
Result<KeyRecord> ActionOf(const KeyInputs& inputs);

/// PrepareCompile's result with what it points into.
struct PreparedInputs {
  std::unique_ptr<const InputFamily> family;
  CompileInput input;
};
Result<PreparedInputs> Prepare(const KeyInputs& inputs);

/// Text of `bytes` bytes that depends on `seed` alone.
std::string NoiseText(std::size_t bytes, std::uint64_t seed);

/// What a compiler could have returned, a pure function of its arguments.
CompileOutput FakeOutput(std::size_t cubin_bytes, std::size_t ptx_bytes);
/// The entry file of `inputs` with that output.
Result<std::string> EntryOf(const KeyInputs& inputs, const CompileOutput& output);

}  // namespace tilewright::test
