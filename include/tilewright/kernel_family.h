#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/compiler.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/rejection.h"

namespace tilewright {

/// The CUDA sources and device headers of this library, embedded by the build, sorted by name.
std::span<const SourceFile> EmbeddedSources();

/// What the launch side must know of a spec beside the parameter block.
struct KernelLaunchShape {
  std::uint32_t threads = 0;             ///< of a CTA
  std::uint32_t dynamic_smem_bytes = 0;  ///< to ask for at launch

  auto operator<=>(const KernelLaunchShape&) const = default;
};

/// What the compiler may use before a build counts as failed. A build of which the spills are
/// unknown has failed too, whatever the limit.
struct ResourceLimits {
  std::uint32_t max_registers = 255;
  std::uint32_t max_spill_bytes = 0;  ///< stores plus loads, bytes a thread
  std::uint32_t max_stack_bytes = 0;

  auto operator<=>(const ResourceLimits&) const = default;
};

/// A compiler option. Allowed are those of the table in docs/artifact_key.md; another is an error
/// when the key is made.
struct CompileOption {
  std::string_view flag;   ///< "--fmad"
  std::string_view value;  ///< "false"; empty for none
};

/// One family of kernels compiled at run time: a source, and pure functions of a spec. A plain
/// value of static lifetime; copyable, no state. Own families of a user are added beside ours.
///
/// The source is one translation unit `source`, which includes "spec.cuh", a header written by
/// RenderSpec with the fields of the spec as constants, and defines
///   extern "C" __global__ void TILEWRIGHT_KERNEL(const Params params)
/// (docs/artifact_key.md, "What the compiler sees").
struct KernelFamily {
  FamilyName name;
  /// Of what the kernel promises its callers beyond its source, launch shape and limits, which are
  /// in the key themselves; bump it when that changes.
  std::uint32_t revision = 1;
  /// Layout of the parameter block; a change makes every older artifact unusable.
  std::uint32_t launch_abi = 1;
  std::string_view source;  ///< virtual name of the translation unit
  /// Where it and its headers are looked for, before EmbeddedSources().
  std::span<const SourceFile> files;
  std::span<const CompileOption> options;  ///< beside those every kernel has
  /// Why no kernel can be made of this spec: a field out of range, an instruction the architecture
  /// lacks. nullopt when it can.
  std::optional<Rejection> (*check)(const KernelSpec& spec) = nullptr;
  /// Both are asked only for specs that `check` accepts, and their answers are part of the key.
  KernelLaunchShape (*launch)(const KernelSpec& spec) = nullptr;
  ResourceLimits (*limits)(const KernelSpec& spec) = nullptr;
  /// The specs we ship for an architecture, in a fixed order, each accepted by `check`; empty where
  /// the instructions do not exist.
  std::vector<KernelSpec> (*catalog)(CudaArch arch) = nullptr;
};

/// The families a store knows. Filled once, then const and shared between threads.
class KernelFamilies {
 public:
  /// kInvalidArgument for an invalid name or one that is taken, a missing function or source.
  Status Add(const KernelFamily& family);
  const KernelFamily* Find(const FamilyName& name) const;
  std::span<const KernelFamily> all() const { return families_; }
  /// The catalogs of all families for `arch`, in the order of Add.
  std::vector<KernelSpec> Catalog(CudaArch arch) const;

 private:
  std::vector<KernelFamily> families_;
};

/// The header "spec.cuh" of a spec: `namespace tw::spec` with every field as a constant
/// (`inline constexpr int kTileM = 128;`, `kTypeA = Type::kBF16` ...) and macros for what the
/// preprocessor must see: TW_ARCH (90), TW_ARCH_SUFFIX_A (0 or 1), TILEWRIGHT_KERNEL (the symbol).
/// A pure function of its arguments. docs/artifact_key.md shows one.
std::string RenderSpec(const KernelSpec& spec, std::string_view symbol);

}  // namespace tilewright
