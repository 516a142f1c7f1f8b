// The one place where kernels are gathered, operation by operation (the list itself:
// tilewright/kernels.h).

#include "ops/attention/cuda/kernels.h"

#include "core/text.h"
#include "ops/attention/attention.h"
#include "ops/copy/copy.h"
#include "ops/copy/cuda/kernels.h"
#include "ops/copy/kv_scatter.h"
#include "ops/elementwise/cuda/kernels.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/cuda/kernels.h"
#include "ops/embedding/embedding.h"
#include "ops/experts/combine.h"
#include "ops/experts/cuda/kernels.h"
#include "ops/experts/route.h"
#include "ops/gemm/cuda/cublaslt/cublaslt_gemm.h"
#include "ops/gemm/cuda/kernels/kernels.h"
#include "ops/gemm/register.h"
#include "ops/norm/cuda/kernels.h"
#include "ops/norm/norm.h"
#include "ops/rope/cuda/kernels.h"
#include "ops/rope/rope.h"
#include "ops/top_k/cuda/kernels.h"
#include "ops/top_k/top_k.h"
#include "sequence/sequences.h"
#include "tilewright/tilewright.h"

namespace tilewright {

void AddAllGemm(Registry& registry) { AddGemm(registry); }

std::unique_ptr<Kernels> MakeCpuKernels() {
  auto kernels = std::make_unique<Kernels>();
  AddGemm(kernels->of<GemmOp>());
  norm::AddKernels(kernels->of<norm::Op>());
  rope::AddKernels(kernels->of<rope::Op>());
  elementwise::AddKernels(kernels->of<elementwise::Op>());
  copy::AddKernels(kernels->of<copy::Op>());
  kv_scatter::AddKernels(kernels->of<kv_scatter::Op>());
  embedding::AddKernels(kernels->of<embedding::Op>());
  attention::AddKernels(kernels->of<attention::Op>());
  top_k::AddKernels(kernels->of<top_k::Op>());
  route::AddKernels(kernels->of<route::Op>());
  combine::AddKernels(kernels->of<combine::Op>());
  AddSequences(kernels->gemm(), kernels->of<copy::Op>(), kernels->of<elementwise::Op>());
  return kernels;
}

Result<std::unique_ptr<Kernels>> MakeCudaKernels(ArtifactStore& store, CudaArch arch,
                                                 VendorLibraries vendor) {
  if (store.families().Catalog(arch).empty()) {
    return Fail(ErrorCode::kUnsupported, Format("no kernel is made for {}", arch.ToString()));
  }
  auto kernels = std::make_unique<Kernels>();
  if (Status added = AddCudaGemm(kernels->of<GemmOp>(), store, arch); !added) {
    return Fail(added.error());
  }
  const bool required = vendor == VendorLibraries::kOfHere;
  if (Status added =
          kernels->gemm().Add(std::make_unique<CublasLtGemm>(cuda::FindCublasLt(), required));
      !added) {
    return Fail(added.error());
  }
  const auto add = [&]<class Op>(Status (*add_kernels)(OpRegistry<Op>&, ArtifactStore&, CudaArch)) {
    return add_kernels(kernels->of<Op>(), store, arch);
  };
  for (const Status& added :
       {add(&norm::AddCudaKernels), add(&rope::AddCudaKernels), add(&elementwise::AddCudaKernels),
        add(&copy::AddCudaKernels), add(&kv_scatter::AddCudaKernels),
        add(&embedding::AddCudaKernels), add(&attention::AddCudaKernels),
        add(&top_k::AddCudaKernels), add(&route::AddCudaKernels), add(&combine::AddCudaKernels)}) {
    if (!added) return Fail(added.error());
  }
  AddSequences(kernels->gemm(), kernels->of<copy::Op>(), kernels->of<elementwise::Op>());
  return kernels;
}

}  // namespace tilewright
