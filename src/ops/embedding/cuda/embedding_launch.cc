#include "ops/embedding/cuda/embedding_launch.h"

#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/row_views.h"
#include "ops/embedding/cuda/families.h"
#include "tilewright/cuda/embedding_params.h"

namespace tilewright {
namespace {

/// The last thread's first element, and that of the thread behind it, are still an int.
constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 8 * 1024;

std::optional<Rejection> CheckViews(const KernelSpec& spec, const embedding::Args& args) {
  const std::int64_t hidden = args.table.shape[0], entries = args.table.shape[1];
  const std::int64_t rows = args.out.shape[1];
  for (const std::int64_t extent : {hidden, entries, rows}) {
    if (extent >= 1 && extent <= kMaxExtent) continue;
    return Reject(Reason::kShape, Format("{} rows of {} from {} entries", rows, hidden, entries),
                  Format("1 to {} each", kMaxExtent));
  }
  if (auto no = cuda::CheckOperand("table", args.table, spec.type_a, {hidden, entries, 1, 1}))
    return no;
  if (auto no = cuda::CheckOperand("out", args.out, spec.type_d, {hidden, rows, 1, 1})) return no;
  if (auto no = cuda::CheckOperand("ids", args.ids, DataType::kI32)) return no;
  if (args.ids.shape[0] < rows || args.ids.stride[0] != 1) {
    return Reject(Reason::kShape, Format("ids of {} elements", args.ids.shape[0]),
                  Format("{} adjacent elements", rows));
  }
  if ((hidden > 1 && (args.table.stride[0] != 1 || args.out.stride[0] != 1)) ||
      hidden % GetTypeInfo(spec.type_a).block_elements != 0) {
    return Reject(Reason::kStriding, "a table or out of elements apart, or of parts of blocks",
                  "adjacent elements, whole blocks");
  }
  return std::nullopt;
}

bool RowsAlignedTo16(const TensorView& view) {
  cuda::RowStrides strides;
  if (view.shape[1] > 1) strides.rows[0] = view.stride[1];
  return cuda::AlignedTo16(view, strides);
}

}  // namespace

cuda::LaunchResult EmbeddingLaunch(const KernelSpec& spec, const embedding::Args& args) {
  const KernelFamily family = EmbeddingFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  const bool blocks = GetTypeInfo(spec.type_a).block_elements > 1;
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::EmbeddingParams params{};
  params.table = args.table.data;
  params.ids = args.ids.as<const int>();
  params.out = args.out.data;
  params.table_row_bytes = static_cast<long long>(BytesOf(spec.type_a, args.table.stride[1]));
  params.out_row = args.out.stride[1];
  params.rows = static_cast<int>(args.out.shape[1]);
  params.entries = static_cast<int>(args.table.shape[1]);
  params.hidden = static_cast<int>(args.table.shape[0]);
  params.wide = RowsAlignedTo16(args.out) && (blocks || RowsAlignedTo16(args.table)) ? 1 : 0;
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(params.rows),
                 cuda::EmbeddingGridY(params.hidden, cuda::EmbeddingElements(blocks, params.wide),
                                      static_cast<int>(compiled.threads)),
                 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
