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

/// The library's CUDA sources and device headers, embedded at build time, sorted by name.
std::span<const SourceFile> EmbeddedSources();

/// What a launch needs to know about a spec besides the parameter block.
struct KernelLaunchShape {
  std::uint32_t threads = 0;             ///< per CTA
  std::uint32_t dynamic_smem_bytes = 0;  ///< to request at launch

  auto operator<=>(const KernelLaunchShape&) const = default;
};

/// What a kernel may use before its build counts as failed. A build whose spills are unknown fails
/// too, whatever the limit.
struct ResourceLimits {
  std::uint32_t max_registers = 255;
  std::uint32_t max_spill_bytes = 0;  ///< stores plus loads, bytes per thread
  std::uint32_t max_stack_bytes = 0;

  auto operator<=>(const ResourceLimits&) const = default;
};

/// A compiler option. Only those in the table of docs/artifact_key.md are allowed; any other is an
/// error when the key is computed.
struct CompileOption {
  std::string_view flag;   ///< "--fmad"
  std::string_view value;  ///< "false"; empty if the flag has no value
};

/// A family of kernels compiled at run time: a source and pure functions of a spec. A plain,
/// copyable value without state; everything it points to has static lifetime. Users can add
/// families of their own.
///
/// The translation unit `source` includes "spec.cuh", a header that RenderSpec generates with the
/// fields of the spec as constants, and defines
///   extern "C" __global__ void TILEWRIGHT_KERNEL(const Params params)
/// (docs/artifact_key.md, "What the compiler sees").
struct KernelFamily {
  FamilyName name;
  /// Version of what callers may rely on beyond the source, launch shape and limits, which are in
  /// the key themselves. Increase it when that changes.
  std::uint32_t revision = 1;
  /// Version of the parameter block's layout; changing it makes every older artifact unusable.
  std::uint32_t launch_abi = 1;
  std::string_view source;  ///< virtual name of the translation unit
  /// Searched for the source and its headers before EmbeddedSources().
  std::span<const SourceFile> files;
  std::span<const CompileOption> options;  ///< in addition to those of every kernel
  /// Why no kernel can be built from this spec (a field out of range, an instruction that the
  /// architecture lacks), or nullopt if one can.
  std::optional<Rejection> (*check)(const KernelSpec& spec) = nullptr;
  /// `launch` and `limits` are called only for specs that `check` accepts; their results are part
  /// of the key.
  KernelLaunchShape (*launch)(const KernelSpec& spec) = nullptr;
  ResourceLimits (*limits)(const KernelSpec& spec) = nullptr;
  /// The predefined specs for an architecture, in a fixed order, each accepted by `check`; empty if
  /// the architecture lacks the instructions.
  std::vector<KernelSpec> (*catalog)(CudaArch arch) = nullptr;
  /// Whether the kernels, compiled for sm_90 and newer, may be started before the kernels in front
  /// of them have ended (programmatic dependent launch): every CTA executes griddepcontrol.wait
  /// before it touches what those write or read, and in any case before it ends. Before it, they
  /// touch only what the launch's arguments call constant. No part of the key, as the source is.
  bool waits_for_prerequisites = false;
};

/// The families that a store knows. Filled once, then const and shared between threads.
class KernelFamilies {
 public:
  /// kInvalidArgument for a name that is invalid or taken, or a missing function or source.
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
/// A pure function of its arguments. docs/artifact_key.md shows an example.
std::string RenderSpec(const KernelSpec& spec, std::string_view symbol);

}  // namespace tilewright
