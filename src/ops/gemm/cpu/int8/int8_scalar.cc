#include "ops/gemm/cpu/int8/vec_scalar.h"

namespace tilewright::gemm_int8 {
namespace {

using Vec = VecScalar;

}  // namespace
}  // namespace tilewright::gemm_int8

#define TILEWRIGHT_UNROLL
#include "ops/gemm/cpu/int8/micro_kernel.h"

namespace tilewright::gemm_int8 {
const IsaOps& OpsScalar() { return kOps; }
}  // namespace tilewright::gemm_int8
