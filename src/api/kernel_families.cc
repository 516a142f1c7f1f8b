// The one list of all kernel families that are compiled at run time.

#include "ops/attention/cuda/families.h"
#include "ops/copy/cuda/families.h"
#include "ops/elementwise/cuda/families.h"
#include "ops/embedding/cuda/families.h"
#include "ops/experts/cuda/families.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_chain/families.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_qr/families.h"
#include "ops/gemm/cuda/gemm_qw/families.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/grouped/families.h"
#include "ops/norm/cuda/families.h"
#include "ops/rope/cuda/families.h"
#include "ops/top_k/cuda/families.h"
#include "tilewright/tilewright.h"

namespace tilewright {

KernelFamilies AllKernelFamilies() {
  KernelFamilies families;
  // Names are constants of ours, each added once: tests/artifact/kernels checks that none is
  // rejected.
  (void)AddGemmFamilies(families);
  (void)AddGemvFamilies(families);
  (void)AddGemmQFamily(families);
  (void)AddGemmQwFamily(families);
  (void)AddGemmQrFamily(families);
  (void)AddGemmChainFamily(families);
  (void)AddGroupedFamilies(families);
  (void)AddNormFamilies(families);
  (void)AddRopeFamilies(families);
  (void)AddElementwiseFamilies(families);
  (void)AddCopyFamilies(families);
  (void)AddEmbeddingFamilies(families);
  (void)AddAttentionFamilies(families);
  (void)AddTopKFamilies(families);
  (void)AddExpertsFamilies(families);
  return families;
}

}  // namespace tilewright
