// Records and tuning of products; what they are measured with is in ops/gemm/tune.

#include "engine/cache/dispatch_cache_template.h"
#include "engine/tune/matrix_template.h"
#include "engine/tune/tune_template.h"
#include "ops/gemm/base/gemm_op.h"

namespace tilewright {
TILEWRIGHT_INSTANTIATE_CACHE(GemmOp);
TILEWRIGHT_INSTANTIATE_TUNE(GemmOp);
TILEWRIGHT_INSTANTIATE_MATRIX(GemmOp);
}  // namespace tilewright
