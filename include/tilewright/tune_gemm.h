#pragma once

#include <memory>

#include "tilewright/executor.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/tune.h"

namespace tilewright {

using GemmMeasurer = Measurer<GemmOp>;
using TuneProblem = TuneProblemOf<GemmOp>;

/// Measures products on this machine with `executor`, which must outlive it. Cold: the weights of
/// consecutive launches rotate, as MakeMeasurer says. The check runs on whole numbers, for which
/// every precision is exact, and on random ones within the tolerance of the type, twice for kernels
/// that claim to be deterministic. Problems with num > 1 are ErrorCode::kUnsupported.
std::unique_ptr<GemmMeasurer> MakeCpuGemmMeasurer(Executor& executor,
                                                  const MeasurerOptions& options = {});

}  // namespace tilewright
