#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tilewright/dispatch_cache.h"
#include "tilewright/gemm.h"
#include "tilewright/records.h"
#include "tilewright/stages.h"

namespace tilewright {

// The stages of tilewright/stages.h for GEMM, and what GEMM has beside them: layouts of weights.

using CheckedGemm = Checked<GemmOp>;
using GemmCandidate = Candidate<GemmOp>;
using GemmCandidates = Candidates<GemmOp>;
using GemmChoice = Choice<GemmOp>;
using GemmPlan = Plan<GemmOp>;
using DispatchCache = DispatchCacheOf<GemmOp>;

/// Rejects what no kernel could run: sizes below 1, k that does not divide into blocks or groups,
/// fields that contradict each other, operands beyond 2^40 elements. The message names value and
/// limit.
Result<CheckedGemm> Validate(const GemmDesc& desc);

struct ValidateOptions {
  /// Put the alignment that the pointers happen to have into the key.
  bool promise_alignment = false;
};
/// The problem of a call: as above, and the pointers, leading dimensions, offsets and indices of
/// `args` are checked too (the offsets are read; the operands are not).
Result<CheckedGemm> Validate(const Operation& operation, const GemmArgs& args,
                             const ValidateOptions& options = {});

/// Which packed layout weights should get at load.
struct BatchWeight {
  std::int32_t batch = 1;
  double weight = 1;  ///< calls of this batch size, relative to each other
};
struct PackChoice {
  Pack pack = kPackPlain;
  Kernel* packer = nullptr;  ///< a kernel of this layout: call its PackedBytes and PackB
  double weighted_us = 0;    ///< what the weights cost in this layout
  Provenance provenance = Provenance::kModel;  ///< kMeasured only if every batch size was
  struct Row {
    Pack pack;
    double weighted_us;
    int measured;  ///< batch sizes whose time was measured
  };
  std::vector<Row> layouts;  ///< all that work for every batch size, best first
};
/// Picks the layout whose best kernels take the least time over `batches`. `weights` is a problem
/// with pack_b == kPackAny; its batch is ignored. Times come from records where there are any, else
/// from the model scaled to the records of that batch size. A layout for which
/// some batch size has no kernel is not considered; the plain layout is one of the layouts.
Result<PackChoice> ChoosePack(const GemmDesc& weights, std::span<const BatchWeight> batches,
                              const Registry& registry, const DeviceSpec& device,
                              const FeasibleOptions& options, const TunedSpecs<GemmOp>* records);

}  // namespace tilewright
