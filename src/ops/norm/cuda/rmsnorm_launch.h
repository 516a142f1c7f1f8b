#pragma once

#include <cstdint>
#include <limits>

#include "device/cuda/launch.h"
#include "ops/norm/norm.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// A norm with the addition before it that the epilogue add has: what is normalised is sum = in +
/// residual, rounded to its type. Views of the shape of norm.in; without that epilogue they have no
/// data. sum may be residual or, of its type, norm.in.
struct AddNormArgs {
  norm::Args norm;
  TensorView residual, sum;
};

/// The widest row: a turn of all threads, 8 elements each, is added to a column's number.
inline constexpr std::int64_t kMaxRmsNormCols = std::numeric_limits<std::int32_t>::max() - 1024 * 8;

/// Whether one launch serves all rows: in every view they are at one distance, or in groups of as
/// many, at another.
bool RowsInGroups(const AddNormArgs& args);

/// The launch of an rmsnorm kernel: a CTA for each row. `spec` passed the family's check; pointers
/// are the device's. Refused are views of other types than the spec's, shapes that do not fit
/// together, rows that are not RowsInGroups, and an address that is no multiple of its element. No
/// workspace.
cuda::LaunchResult RmsNormLaunch(const KernelSpec& spec, const AddNormArgs& args);

}  // namespace tilewright
