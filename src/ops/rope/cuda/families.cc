#include "ops/rope/cuda/families.h"

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/rope/angles.h"

namespace tilewright {
namespace {

constexpr int kWarps = 4;

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (auto no = CheckPlainFloat("type_c", s.type_c)) return no;
  if (auto no = CheckPlainFloat("type_d", s.type_d)) return no;
  if (s.type_b != DataType::kNone)
    return Reject(Reason::kType, Format("type_b = {}", DataTypeName(s.type_b)), "none");
  KernelSpec plain;
  plain.family = s.family, plain.arch = s.arch;
  plain.type_a = s.type_a, plain.type_c = s.type_c, plain.type_d = s.type_d;
  plain.order_a = s.order_a, plain.order_b = s.order_b;
  plain.warps = s.warps;
  if (s != plain) {
    return Reject(Reason::kShape, "a field that rope_kv does not use is set",
                  "epilogue none, everything but types, orders and warps 0");
  }
  return std::nullopt;
}

/// Queries keep their type: models turn them in place.
std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType in : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const DataType cache : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
      KernelSpec spec;
      spec.family = "rope_kv";
      spec.arch = arch;
      spec.type_a = in;
      spec.type_c = cache;
      spec.type_d = in;
      spec.order_a = spec.order_b = Order::kRowMajor;
      spec.warps = kWarps;
      specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace

KernelFamily RopeKvFamily() {
  // The bits of the kernels of `rope`.
  static constexpr CompileOption kUnfused[] = {{"--fmad", "false"}};
  return {.name = "rope_kv",
          .launch_abi = 2,
          .source = "ops/rope/cuda/rope_kv.cu",
          .files = {},
          .options = kUnfused,
          .check = &Check,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddRopeFamilies(KernelFamilies& families) {
  if (Status added = families.Add(RopeKvFamily()); !added) return added;
  return families.Add(RopeFamily());
}

std::vector<std::uint64_t> RopeTurns(std::span<const double> frequencies) {
  return rope::TurnsOf(frequencies);
}

}  // namespace tilewright
