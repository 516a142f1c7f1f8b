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

void ForEachKernel(
    const CpuKernels& kernels,
    const std::function<void(std::string_view op, const KernelBase& kernel)>& visit) {
  const auto all = [&visit](std::string_view op, const auto& registry) {
    for (const auto* kernel : registry.kernels()) visit(op, *kernel);
  };
  all("gemm", kernels.gemm);
  all("norm", kernels.norm);
  all("rope", kernels.rope);
  all("elementwise", kernels.elementwise);
  all("copy", kernels.copy);
  all("kv_scatter", kernels.kv_scatter);
  all("embedding", kernels.embedding);
  all("attention", kernels.attention);
}

void CpuKernelsDeleter::operator()(CpuKernels* kernels) const { delete kernels; }
Registry& GemmRegistryOf(CpuKernels& kernels) { return kernels.gemm; }
const Registry& GemmRegistryOf(const CpuKernels& kernels) { return kernels.gemm; }

}  // namespace tilewright
