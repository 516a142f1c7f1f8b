#pragma once

#include "device/cuda/launch.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// The launch of a gemv_bf16 or gemv_q kernel: x is A, W is B, y is D. `spec` passed the family's
/// check; pointers of `args` are the device's. Refused are the arguments that CheckGemmArgs
/// refuses; a k that is not whole blocks, rows of blocks that are not aligned as
/// tilewright/cuda/gemv_params.h says, an ldx beyond kGemvMaxLdx, and more rows than the grid has
/// room for. No workspace, no atomics: the same launch gives the same bits.
cuda::LaunchResult GemvLaunch(const KernelSpec& spec, const GemmArgs& args);

/// The same of a gemv_stream kernel, on a GPU of `sm_count` multiprocessors. Refused are a k that is
/// no multiple of kGemvStreamPack or beyond GemvStreamMaxK, and rows that are not aligned to 16
/// bytes. The bits do not depend on `sm_count`.
cuda::LaunchResult GemvStreamLaunch(const KernelSpec& spec, const GemmArgs& args, int sm_count);

/// The same of a gemv_int8 kernel. Refused are more rows than tile_m, a k that is not whole blocks or
/// beyond GemvInt8MaxK, rows of W that are not aligned to GemvRowAlignment and rows of x that are not
/// to 16 bytes.
cuda::LaunchResult GemvInt8Launch(const KernelSpec& spec, const GemmArgs& args, int sm_count);

}  // namespace tilewright
