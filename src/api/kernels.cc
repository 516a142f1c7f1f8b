// The one list of all operations and their kernels.

#include "graph/cpu/kernels.h"

#include "ops/gemm/register.h"
#include "tilewright/tilewright.h"

namespace tilewright {

void AddAllGemm(Registry& registry) { AddGemm(registry); }

CpuKernelsPtr MakeCpuKernels() {
  CpuKernelsPtr kernels(new CpuKernels);
  AddGemm(kernels->gemm);
  AddNorm(kernels->norm);
  AddRope(kernels->rope);
  AddElementwise(kernels->elementwise);
  AddCopy(kernels->copy);
  AddKvScatter(kernels->kv_scatter);
  AddEmbedding(kernels->embedding);
  AddAttention(kernels->attention);
  return kernels;
}

void CpuKernelsDeleter::operator()(CpuKernels* kernels) const { delete kernels; }
Registry& GemmRegistryOf(CpuKernels& kernels) { return kernels.gemm; }
const Registry& GemmRegistryOf(const CpuKernels& kernels) { return kernels.gemm; }

}  // namespace tilewright
