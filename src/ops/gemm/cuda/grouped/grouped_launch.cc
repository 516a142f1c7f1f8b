#include "ops/gemm/cuda/grouped/grouped_launch.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemm_args.h"
#include "ops/gemm/cuda/gemm_launch.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_q/gemm_q_launch.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/gemv_launch.h"
#include "ops/gemm/cuda/grouped/families.h"
#include "tilewright/cuda/grouped_gemm_params.h"

namespace tilewright {
namespace {

std::optional<Rejection> CheckTable(const char* name, const std::int32_t* table, bool optional) {
  if (table == nullptr && optional) return std::nullopt;
  const auto address = reinterpret_cast<std::uintptr_t>(table);
  if (address == 0) return Reject(Reason::kStriding, Format("{} is null", name), "device memory");
  if (address % sizeof *table == 0) return std::nullopt;
  return Reject(Reason::kAlignment, Format("{} at {:#x}", name, address), "multiples of 4");
}

std::optional<Rejection> CheckGroups(const GemmArgs& args) {
  const MatrixLayout &a = args.a_layout, &b = args.b_layout, &d = args.d_layout;
  if (a.num < 2 || b.num != a.num || d.num != a.num) {
    return Reject(Reason::kStriding,
                  Format("{} groups of A, {} of B, {} of D", a.num, b.num, d.num),
                  "two or more, of each as many");
  }
  if (b.ld == 0) return Reject(Reason::kStriding, "a pointer to each matrix", "matrices in a row");
  if (d.idxs != nullptr) return Reject(Reason::kStriding, "indexed rows of D", "rows in order");
  if (a.offsets != d.offsets)
    return Reject(Reason::kStriding, "offsets of A and of D", "the same for both");
  if (args.beta != 0.0f)
    return Reject(Reason::kScaling, Format("beta = {}", args.beta), "beta = 0");
  if (auto no = CheckTable("offsets", a.offsets, false)) return no;
  return CheckTable("indices of A", a.idxs, true);
}

/// The product of `rows` rows with the first matrix.
GemmArgs DenseArgs(GemmArgs args, std::int32_t rows) {
  for (MatrixLayout* layout : {&args.a_layout, &args.c_layout, &args.d_layout}) {
    layout->rows = rows;
    layout->num = 1;
    layout->offsets = layout->idxs = nullptr;
  }
  args.b_layout.num = 1;
  return args;
}

cuda::GemmGroups GroupsOf(const GemmArgs& args) {
  const MatrixLayout& b = args.b_layout;
  return {.offsets = args.a_layout.offsets,
          .sources = args.a_layout.idxs,
          .w_group_bytes = static_cast<long long>(BytesOf(b.type, b.ld)) * b.cols,
          .count = b.num,
          .reserved = 0};
}

/// The dense launch of one row; `share` of the multiprocessors are for it.
cuda::LaunchResult LaunchOfRow(const KernelSpec& dense, const GemmArgs& row, int share) {
  if (dense.family == GemvInt8Family().name) return GemvInt8Launch(dense, row, share);
  if (dense.family == GemvStreamFamily().name) return GemvStreamLaunch(dense, row, share);
  return GemvLaunch(dense, row);
}

cuda::LaunchResult RowsLaunch(const KernelSpec& dense, const GemmArgs& args, int sm_count) {
  const std::int32_t rows = args.d_layout.rows;
  if (rows < 1 || rows > kMostRowsOfGroups) {
    return tl::unexpected(
        *Reject(Reason::kShape, Format("m = {}", rows), Format("1 to {}", kMostRowsOfGroups)));
  }
  cuda::LaunchResult launch =
      LaunchOfRow(dense, DenseArgs(args, 1), std::max(sm_count / static_cast<int>(rows), 1));
  if (!launch) return launch;
  launch->grid[1] = static_cast<std::uint32_t>(rows);
  launch->params = cuda::KernelParams(cuda::GroupedGemvParams{
      .product = *launch->params.As<cuda::GemvParams>(), .groups = GroupsOf(args)});
  return cuda::CheckedLaunch(*launch);
}

/// The grid of tiles of rows of one group.
std::optional<Rejection> PutTiles(const KernelSpec& dense, const GemmArgs& args,
                                  cuda::CudaLaunch& launch) {
  const std::int64_t columns = (args.b_layout.cols - 1) / dense.tile_n + 1;
  const std::int64_t tiles =
      cuda::GroupedTiles(args.d_layout.rows, args.b_layout.num, dense.tile_m) * columns;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 1024;
  if (tiles > kMost)
    return Reject(Reason::kShape, Format("{} output tiles", tiles), Format("at most {}", kMost));
  launch.grid = {static_cast<std::uint32_t>(tiles), 1, 1};
  return std::nullopt;
}

cuda::LaunchResult TilesLaunch(const KernelSpec& dense, const GemmArgs& args) {
  const bool blocks = dense.family == FamilyName(kGemmQ);
  const GemmArgs all = DenseArgs(args, args.d_layout.rows);
  cuda::LaunchResult launch = blocks ? GemmQWholeLaunch(dense, all) : GemmSimtLaunch(dense, all);
  if (!launch) return launch;
  if (auto no = PutTiles(dense, args, *launch)) return tl::unexpected(*std::move(no));
  const cuda::GemmGroups groups = GroupsOf(args);
  if (blocks) {
    launch->params = cuda::KernelParams(cuda::GroupedGemmQParams{
        .product = *launch->params.As<cuda::GemmQParams>(), .groups = groups});
  } else {
    launch->params = cuda::KernelParams(cuda::GroupedGemmSimtParams{
        .product = *launch->params.As<cuda::GemmMmaParams>(), .groups = groups});
  }
  return cuda::CheckedLaunch(*launch);
}

}  // namespace

cuda::LaunchResult GroupedLaunch(const KernelSpec& spec, const GemmArgs& args, int sm_count) {
  if (DenseFamilyOf(spec.family) == nullptr) {
    return tl::unexpected(*Reject(Reason::kDevice, Format("a kernel of {}", spec.family.view()),
                                  "one of a grouped family"));
  }
  if (auto no = CheckGroups(args)) return tl::unexpected(*std::move(no));
  const KernelSpec dense = DenseSpecOf(spec);
  if (GroupsByRow(spec)) return RowsLaunch(dense, args, sm_count);
  return TilesLaunch(dense, args);
}

}  // namespace tilewright
