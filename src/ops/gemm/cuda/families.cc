#include "ops/gemm/cuda/families.h"

#include <algorithm>

#include "ops/gemm/cuda/family_checks.h"

namespace tilewright {

Status AddGemmFamilies(KernelFamilies& families) {
  for (const KernelFamily& family : {GemmMmaFamily(), GemmHopperFamily(), GemmSimtFamily()}) {
    if (Status added = families.Add(family); !added) return added;
  }
  return {};
}

std::vector<KernelSpec> GemmSpecsForWeight(DataType weight, CudaArch arch) {
  std::vector<KernelSpec> specs;
  for (const KernelFamily& family : {GemmHopperFamily(), GemmMmaFamily(), GemmSimtFamily()}) {
    for (const KernelSpec& spec : family.catalog(arch)) {
      const bool simt = spec.family == FamilyName(kGemmSimt);
      // Where tensor cores take the weights nothing else is worth having.
      const bool wanted = simt ? weight == DataType::kF32 : spec.epilogue == SpecEpilogue::kNone;
      if (spec.type_b == weight && wanted && spec.order_a == Order::kRowMajor &&
          spec.order_b == Order::kColMajor) {
        specs.push_back(spec);
      }
    }
  }
  return specs;
}

}  // namespace tilewright
