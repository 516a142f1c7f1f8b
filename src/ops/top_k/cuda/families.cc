#include "ops/top_k/cuda/families.h"

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "tilewright/top_k.h"

namespace tilewright {
namespace {

/// A thread keeps 16 elements of a chunk: as many loads on their way as hide the memory's latency.
constexpr int kWarps = 8;

KernelSpec MakeSpec(DataType in, int most_k, CudaArch arch) {
  KernelSpec spec;
  spec.family = "top_k";
  spec.arch = arch;
  spec.type_a = in;
  spec.order_a = spec.order_b = Order::kRowMajor;
  spec.warps = kWarps;
  spec.params[0] = most_k;
  return spec;
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (s.params[0] != 1 && s.params[0] != top_k::kMostK) {
    return Reject(Reason::kShape, Format("param0 = {}", s.params[0]),
                  Format("1 or {}", top_k::kMostK));
  }
  if (s.warps != kWarps) {
    return Reject(Reason::kShape, Format("warps = {}", s.warps), Format("{}", kWarps));
  }
  KernelSpec plain = MakeSpec(s.type_a, s.params[0], s.arch);
  plain.family = s.family;
  plain.order_a = s.order_a, plain.order_b = s.order_b;
  if (s != plain) {
    return Reject(Reason::kShape, "a field that top_k does not use is set",
                  "epilogue none, everything but type_a, orders, warps and param0 0 or none");
  }
  return std::nullopt;
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType in : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const int most_k : {1, top_k::kMostK}) specs.push_back(MakeSpec(in, most_k, arch));
  }
  return specs;
}

}  // namespace

KernelFamily TopKFamily() {
  return {.name = "top_k",
          .source = "ops/top_k/cuda/top_k.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddTopKFamilies(KernelFamilies& families) { return families.Add(TopKFamily()); }

}  // namespace tilewright
