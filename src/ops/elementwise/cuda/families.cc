#include "ops/elementwise/cuda/families.h"

#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::array kTypes = {DataType::kF32, DataType::kBF16, DataType::kF16};
constexpr int kWarps = 4;

KernelSpec MakeSpec(CudaArch arch, DataType a, DataType b, DataType out, std::uint16_t warps) {
  KernelSpec spec;
  spec.family = "elementwise";
  spec.arch = arch;
  spec.type_a = a;
  spec.type_b = b;
  spec.type_d = out;
  spec.order_a = spec.order_b = Order::kRowMajor;
  spec.warps = warps;
  return spec;
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (auto no = CheckPlainFloat("type_b", s.type_b)) return no;
  if (auto no = CheckPlainFloat("type_d", s.type_d)) return no;
  KernelSpec plain = MakeSpec(s.arch, s.type_a, s.type_b, s.type_d, s.warps);
  plain.family = s.family;
  if (s != plain) {
    return Reject(Reason::kShape, "a field that elementwise does not use is set",
                  "type_c and epilogue none, everything but types, orders and warps 0");
  }
  return std::nullopt;
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType a : kTypes) {
    for (const DataType b : kTypes) {
      for (const DataType out : kTypes) specs.push_back(MakeSpec(arch, a, b, out, kWarps));
    }
  }
  return specs;
}

}  // namespace

KernelFamily ElementwiseFamily() {
  return {.name = "elementwise",
          .launch_abi = 2,
          .source = "ops/elementwise/cuda/elementwise.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddElementwiseFamilies(KernelFamilies& families) {
  return families.Add(ElementwiseFamily());
}

}  // namespace tilewright
