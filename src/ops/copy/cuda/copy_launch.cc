#include "ops/copy/cuda/copy_launch.h"

#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/row_views.h"
#include "ops/copy/cuda/families.h"
#include "tilewright/cuda/copy_params.h"

namespace tilewright {
namespace {

bool IsBlocked(DataType type) { return GetTypeInfo(type).block_elements > 1; }

std::optional<Rejection> CheckExtents(const TensorView& view) {
  // Every extent on its own first: their product may be too large for its type.
  std::int64_t elements = 1;
  for (const std::int64_t extent : view.shape) {
    if (extent < 1 || extent > kMaxCopyElements / elements) {
      return Reject(Reason::kShape, Format("an extent of {}", extent),
                    Format("1 or more, and at most {} elements", kMaxCopyElements));
    }
    elements *= extent;
  }
  return std::nullopt;
}

std::optional<Rejection> CheckViews(const KernelSpec& spec, const copy::Args& args) {
  const bool bytes = spec.type_a == DataType::kU8;
  if (auto no = CheckExtents(args.src)) return no;
  if (auto no = cuda::CheckOperand("src", args.src, bytes ? args.src.dtype : spec.type_a))
    return no;
  const DataType to = bytes ? args.src.dtype : spec.type_d;
  if (auto no = cuda::CheckOperand("dst", args.dst, to, args.src.shape)) return no;
  const int block = GetTypeInfo(args.src.dtype).block_elements;
  for (const TensorView* view : {&args.src, &args.dst}) {
    if (!IsBlocked(args.src.dtype)) continue;
    if (view->stride[0] != 1)
      return Reject(Reason::kStriding, "values of blocks apart", "adjacent values");
    for (std::size_t d = 0; d < 4; ++d) {
      const bool whole =
          d == 0 ? view->shape[0] % block == 0
                 : !IsBlocked(view->dtype) || view->shape[d] == 1 || view->stride[d] % block == 0;
      if (!whole)
        return Reject(Reason::kShape, "parts of blocks", Format("whole blocks of {}", block));
    }
  }
  return std::nullopt;
}

cuda::CopyOperand OperandOf(const cuda::RowStrides& strides) {
  return {strides.col, {strides.rows[0], strides.rows[1], strides.rows[2]}};
}

/// `operand` and `cols` of elements of `type`, in units of bytes.
void CountInBytes(DataType type, cuda::CopyOperand& operand) {
  const auto bytes = [&](long long stride) {
    return static_cast<long long>(BytesOf(type, stride));
  };
  operand.col = IsBlocked(type) ? 1 : bytes(operand.col);
  for (long long& row : operand.row) row = bytes(row);
}

/// A copy of bytes by the largest unit that all addresses and strides are multiples of.
void CountInUnits(const copy::Args& args, cuda::CopyParams& params) {
  const DataType type = args.src.dtype;
  const bool adjacent = params.from.col == 1 && params.to.col == 1;
  CountInBytes(type, params.from);
  CountInBytes(type, params.to);
  auto all = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(params.src) |
                                             reinterpret_cast<std::uintptr_t>(params.dst));
  for (const cuda::CopyOperand* operand : {&params.from, &params.to}) {
    for (const long long row : operand->row) all |= static_cast<unsigned long long>(row);
  }
  const auto element = static_cast<long long>(GetTypeInfo(type).block_bytes);
  if (adjacent) params.cols = static_cast<long long>(BytesOf(type, params.cols));
  all |= static_cast<unsigned long long>(adjacent ? params.cols : element);
  int unit = 16;
  while (all % static_cast<unsigned long long>(unit) != 0) unit /= 2;
  params.unit_bytes = unit;
  params.from.col = adjacent ? 1 : params.from.col / unit;
  params.to.col = adjacent ? 1 : params.to.col / unit;
  if (adjacent) params.cols /= unit;
  for (cuda::CopyOperand* operand : {&params.from, &params.to}) {
    for (long long& row : operand->row) row /= unit;
  }
}

}  // namespace

cuda::LaunchResult CopyLaunch(const KernelSpec& spec, const copy::Args& args) {
  const KernelFamily family = CopyFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  const bool bytes = spec.type_a == DataType::kU8, blocks = IsBlocked(spec.type_a);
  const std::array<const TensorView*, 2> views = {&args.src, &args.dst};
  std::array<cuda::RowStrides, 2> strides;
  const cuda::RowSpace space = cuda::JoinRows(views, strides);
  cuda::CopyParams params{};
  params.src = args.src.data;
  params.dst = args.dst.data;
  params.from = OperandOf(strides[0]);
  params.to = OperandOf(strides[1]);
  params.cols = space.cols;
  for (std::size_t d = 0; d < 3; ++d)
    params.extents[d] = static_cast<unsigned int>(space.extents[d]);
  if (bytes) {
    CountInUnits(args, params);
  } else {
    const bool reads = strides[0].col == 1 && (blocks || cuda::AlignedTo16(args.src, strides[0]));
    params.wide = reads && cuda::AlignedTo16(args.dst, strides[1]) ? 1 : 0;
  }
  const int units = cuda::CopyUnits(blocks, bytes, params.wide);
  params.row_items = static_cast<unsigned int>((params.cols + units - 1) / units);
  params.items = params.row_items * static_cast<unsigned int>(space.rows());
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {cuda::CopyGridX(params.items, cuda::CopyItemsOfThread(bytes),
                                 static_cast<int>(compiled.threads)),
                 1, 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
