#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tilewright/result.h"
#include "tilewright/types.h"

namespace tilewright {

/// An NVIDIA architecture as the compiler names it: sm_80, sm_90a, sm_100f. The suffix is part of
/// the identity: code for sm_90a runs only on compute capability 9.0, code for sm_80 on 8.x.
struct CudaArch {
  std::uint16_t number = 0;  ///< major * 10 + minor: 90, 120
  std::uint16_t suffix = 0;  ///< 0, 'a' (this chip only) or 'f' (this family of chips)

  auto operator<=>(const CudaArch&) const = default;

  std::string ToString() const;  ///< "sm_90a"
  int major() const { return number / 10; }
  int minor() const { return number % 10; }
  /// Whether code built for this architecture runs on a device of compute capability `number` (as
  /// major * 10 + minor): with 'a' only if they are equal, else if the majors are equal and the
  /// device's minor is not lower.
  bool RunsOn(int compute_capability) const;
};
/// The architecture that kernels are compiled for to run on a GPU of this compute capability
/// (major * 10 + minor): with the suffix 'a' where there are kernels for that very chip.
CudaArch NativeArch(int compute_capability);
/// "sm_90a" -> {90, 'a'}. kInvalidArgument with the accepted form.
Result<CudaArch> ParseCudaArch(std::string_view text);

/// Name of a kernel family: 1 to 23 lower-case letters, digits and underscores, zero padded. Stored
/// inline, so that KernelSpec is a plain value.
struct FamilyName {
  std::array<char, 24> chars{};

  constexpr FamilyName() = default;
  /// A longer name fills all of `chars` without a terminating zero and is invalid: ParseSpecName
  /// and KernelFamilies::Add reject it. Implicit, so that a table of specs reads
  /// `.family = "gemm_mma"`.
  constexpr FamilyName(std::string_view name) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < name.size() && i < chars.size(); ++i) chars[i] = name[i];
  }
  constexpr FamilyName(const char* name)  // NOLINT(google-explicit-constructor)
      : FamilyName(std::string_view(name)) {}
  /// The characters up to the first zero.
  constexpr std::string_view view() const {
    std::size_t n = 0;
    while (n < chars.size() && chars[n] != '\0') ++n;
    return std::string_view(chars.data(), n);
  }
  auto operator<=>(const FamilyName&) const = default;
};

/// What a kernel does to the accumulator before storing it.
enum class SpecEpilogue : std::uint8_t {
  kNone,   ///< d = alpha * acc
  kAdd,    ///< d = alpha * acc + beta * c
  kScale,  ///< d = acc * weight (norms)
  /// d = silu(alpha * gate) * alpha * up, rows of B paired by kGatedBlock
  kSwiGlu,
};
std::string_view SpecEpilogueName(SpecEpilogue epilogue);

/// One instantiation of one kernel family for one architecture: everything that decides the machine
/// code, and nothing else. A plain value of 64 bytes without padding or pointers; equal values have
/// equal bytes, so it is hashed and compared as raw bytes. Fields that a family does not use must
/// be zero (KernelFamily::check rejects other values), so that each kernel has exactly one spec.
struct KernelSpec {
  FamilyName family;
  CudaArch arch;
  DataType type_a = DataType::kNone;  ///< first input (activations)
  DataType type_b = DataType::kNone;  ///< second input (weights)
  DataType type_c = DataType::kNone;  ///< addend, scale or cache
  DataType type_d = DataType::kNone;  ///< output
  Order order_a = Order::kColMajor;   ///< of A [m][k]: row-major ("t") has k contiguous
  Order order_b = Order::kColMajor;   ///< of B [k][n]: column-major ("n") has k contiguous
  SpecEpilogue epilogue = SpecEpilogue::kNone;
  std::uint8_t stages = 0;                           ///< shared-memory buffers in flight
  std::uint16_t tile_m = 0, tile_n = 0, tile_k = 0;  ///< per CTA, in elements
  std::uint16_t warps = 0;                           ///< per CTA
  std::uint16_t split_k = 0;                  ///< CTAs that share an output tile; 0 or 1: no split
  std::uint8_t cluster_m = 0, cluster_n = 0;  ///< CTAs in a cluster; 0: no cluster
  std::array<std::int32_t, 4> params{};       ///< specific to the family, see its README

  auto operator<=>(const KernelSpec&) const = default;
};
static_assert(sizeof(KernelSpec) == 64);

/// Calls `visit(name, value)` with every field of `spec` in the order of the key schema
/// (docs/artifact_key.md); `Spec` is KernelSpec or const KernelSpec. Keys, names, rendering,
/// differences and the mutation test are all generated from this list.
template <class Spec, class Visit>
void ForEachSpecField(Spec& spec, Visit&& visit) {
  visit("family", spec.family);
  visit("arch", spec.arch);
  visit("type_a", spec.type_a);
  visit("type_b", spec.type_b);
  visit("type_c", spec.type_c);
  visit("type_d", spec.type_d);
  visit("order_a", spec.order_a);
  visit("order_b", spec.order_b);
  visit("epilogue", spec.epilogue);
  visit("stages", spec.stages);
  visit("tile_m", spec.tile_m);
  visit("tile_n", spec.tile_n);
  visit("tile_k", spec.tile_k);
  visit("warps", spec.warps);
  visit("split_k", spec.split_k);
  visit("cluster_m", spec.cluster_m);
  visit("cluster_n", spec.cluster_n);
  visit("param0", spec.params[0]);
  visit("param1", spec.params[1]);
  visit("param2", spec.params[2]);
  visit("param3", spec.params[3]);
}

/// The spec as one readable word, for lists and logs; ParseSpecName is its inverse. Every segment
/// is always present:
///   family "." a "-" b "-" c "-" d "." orders "." arch "." m "x" n "x" k ".w" warps ".s" stages
///   ".k" split ".c" cm "x" cn "." epilogue ".p" p0 "_" p1 "_" p2 "_" p3
/// orders: the letters of docs/kernel_ids.md, `t` row-major, `n` column-major. Example:
///   gemm_mma.bf16-bf16-none-bf16.tn.sm_80.128x128x32.w4.s4.k0.c0x0.none.p0_0_0_0
/// Never part of a key.
std::string SpecName(const KernelSpec& spec);
/// The inverse of SpecName. kInvalidArgument names the segment and its expected form.
Result<KernelSpec> ParseSpecName(std::string_view text);

}  // namespace tilewright
