// Family `rope`: heads turned in place, to another tensor or into a KV cache.

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/rope/cuda/families.h"

namespace tilewright {
namespace {

constexpr int kWarps = 4;

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (auto no = CheckPlainFloat("type_d", s.type_d)) return no;
  if (s.type_b != DataType::kNone || s.type_c != DataType::kNone) {
    return Reject(
        Reason::kType,
        Format("type_b = {}, type_c = {}", DataTypeName(s.type_b), DataTypeName(s.type_c)), "none");
  }
  KernelSpec plain;
  plain.family = s.family, plain.arch = s.arch;
  plain.type_a = s.type_a, plain.type_d = s.type_d;
  plain.order_a = s.order_a, plain.order_b = s.order_b;
  plain.warps = s.warps;
  if (s != plain) {
    return Reject(Reason::kShape, "a field that rope does not use is set",
                  "epilogue none, everything but types, orders and warps 0");
  }
  return std::nullopt;
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType in : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const DataType out : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
      KernelSpec spec;
      spec.family = "rope";
      spec.arch = arch;
      spec.type_a = in;
      spec.type_d = out;
      spec.order_a = spec.order_b = Order::kRowMajor;
      spec.warps = kWarps;
      specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace

KernelFamily RopeFamily() {
  // Two products and a sum, as on the CPU, and the same bits whatever type they are stored in.
  static constexpr CompileOption kUnfused[] = {{"--fmad", "false"}};
  return {.name = "rope",
          .source = "ops/rope/cuda/rope.cu",
          .files = {},
          .options = kUnfused,
          .check = &Check,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
