#include "ops/gemm/cuda/families.h"

#include <algorithm>

namespace tilewright {

Status AddGemmFamilies(KernelFamilies& families) {
  for (const KernelFamily& family : {GemmMmaFamily(), GemmHopperFamily()}) {
    if (Status added = families.Add(family); !added) return added;
  }
  return {};
}

std::vector<KernelSpec> GemmSpecsForWeight(DataType weight, CudaArch arch) {
  std::vector<KernelSpec> specs;
  for (const KernelFamily& family : {GemmHopperFamily(), GemmMmaFamily()}) {
    for (const KernelSpec& spec : family.catalog(arch)) {
      if (spec.type_b == weight && spec.epilogue == SpecEpilogue::kNone &&
          spec.order_a == Order::kRowMajor && spec.order_b == Order::kColMajor) {
        specs.push_back(spec);
      }
    }
  }
  return specs;
}

}  // namespace tilewright
