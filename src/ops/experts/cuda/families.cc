#include "ops/experts/cuda/families.h"

#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::array kTypes = {DataType::kF32, DataType::kBF16, DataType::kF16};
constexpr std::array kMostExperts = {128, 1024};
/// A warp chooses for two rows of a CTA's 32.
constexpr int kRouteWarps = 16;
constexpr int kCombineWarps = 4;

KernelSpec MakeSpec(CudaArch arch, FamilyName family, DataType type, int warps) {
  KernelSpec spec;
  spec.family = family;
  spec.arch = arch;
  spec.type_a = type;
  spec.order_a = spec.order_b = Order::kRowMajor;
  spec.warps = static_cast<std::uint16_t>(warps);
  return spec;
}

/// That `s` has a type of ours, and nothing else but what `plain` has.
std::optional<Rejection> CheckPlain(const KernelSpec& s, KernelSpec plain) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (s.warps != plain.warps) {
    return Reject(Reason::kShape, Format("warps = {}", s.warps), Format("{}", plain.warps));
  }
  plain.family = s.family;
  if (s == plain) return std::nullopt;
  return Reject(Reason::kShape, Format("a field that {} does not use is set", s.family.view()),
                "epilogue none, everything else 0 or none");
}

std::optional<Rejection> CheckRoute(const KernelSpec& s) {
  if (auto no = CheckOneOf("param0", s.params[0], kMostExperts)) return no;
  KernelSpec plain = MakeSpec(s.arch, "route", s.type_a, kRouteWarps);
  plain.params[0] = s.params[0];
  return CheckPlain(s, plain);
}

std::vector<KernelSpec> RouteCatalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType type : kTypes) {
    for (const int most : kMostExperts) {
      specs.push_back(MakeSpec(arch, "route", type, kRouteWarps));
      specs.back().params[0] = most;
    }
  }
  return specs;
}

std::optional<Rejection> CheckCombine(const KernelSpec& s) {
  return CheckPlain(s, MakeSpec(s.arch, "combine", s.type_a, kCombineWarps));
}

std::vector<KernelSpec> CombineCatalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType type : kTypes)
    specs.push_back(MakeSpec(arch, "combine", type, kCombineWarps));
  return specs;
}

}  // namespace

KernelFamily RouteFamily() {
  return {.name = "route",
          .source = "ops/experts/cuda/route.cu",
          .files = {},
          .options = {},
          .check = &CheckRoute,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &RouteCatalog,
          .waits_for_prerequisites = true};
}

KernelFamily CombineFamily() {
  return {.name = "combine",
          .source = "ops/experts/cuda/combine.cu",
          .files = {},
          .options = {},
          .check = &CheckCombine,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &CombineCatalog,
          .waits_for_prerequisites = true};
}

Status AddExpertsFamilies(KernelFamilies& families) {
  if (Status added = families.Add(RouteFamily()); !added) return added;
  return families.Add(CombineFamily());
}

}  // namespace tilewright
