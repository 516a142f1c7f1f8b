#include <fmt/format.h>

#include "core/fingerprint.h"
#include "ops/gemm/cpu/common.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm {

std::string FormatKernelId(const KernelId& id) {
  std::string text = fmt::format("gemm.{}_{}_{}.{}.{}.{}.{}", id.a, id.b, id.c, id.orders, id.isa,
                                 id.tile, id.pack);
  if (!id.flag.empty()) text += fmt::format(".{}", id.flag);
  return text;
}

std::string JoinFingerprints(std::initializer_list<std::string_view> tus) {
  std::string joined;
  for (const std::string_view tu : tus) joined += TuFingerprint(tu).substr(0, 8);
  return joined;
}

std::string_view CommonTu() { return TILEWRIGHT_TU; }

std::optional<Rejection> CheckDense(const GemmDesc& p) {
  if (p.m < 1 || p.n < 1 || p.k < 1) {
    return Rejection{Reason::kShape, fmt::format("m = {}, n = {}, k = {}", p.m, p.n, p.k),
                     "all at least 1"};
  }
  if (p.num != 1 || p.group_axis != -1) {
    return Rejection{Reason::kStriding,
                     fmt::format("num = {}, group_axis = {}", p.num, p.group_axis),
                     "one dense group"};
  }
  if (p.type_u != DataType::kNone || p.type_v != DataType::kNone) {
    return Rejection{
        Reason::kQuant,
        fmt::format("type_u = {}, type_v = {}", DataTypeName(p.type_u), DataTypeName(p.type_v)),
        "no scales beside the matrices"};
  }
  if (p.epilogue == Epilogue::kGatedSilu && p.n % (2 * kGatedBlock) != 0) {
    return Rejection{Reason::kShape, fmt::format("n = {}", p.n),
                     fmt::format("n a multiple of {} for gated_silu", 2 * kGatedBlock)};
  }
  return std::nullopt;
}

void StoreTile(const TileStore& store) {
  const GemmArgs& args = *store.args;
  const float alpha = store.finished ? 1.0f : args.alpha;
  const float beta = args.beta;
  const bool row_major = args.d_layout.order == Order::kRowMajor;
  const std::int64_t d_row = row_major ? args.d_layout.ld : 1;
  const std::int64_t d_col = row_major ? 1 : args.d_layout.ld;
  const std::int64_t c_row = row_major ? args.c_layout.ld : 1;
  const std::int64_t c_col = row_major ? 1 : args.c_layout.ld;
  for (int r = 0; r < store.rows; ++r) {
    const float* acc = store.acc + static_cast<std::int64_t>(r) * store.ld;
    auto* d =
        static_cast<std::uint8_t*>(args.d) + 4 * ((store.row0 + r) * d_row + store.col0 * d_col);
    if (beta == 0.0f) {
      if (alpha == 1.0f && d_col == 1) {
        __builtin_memcpy(d, acc, 4 * static_cast<std::size_t>(store.cols));
      } else {
        for (int c = 0; c < store.cols; ++c) StoreAs<float>(d + 4 * c * d_col, alpha * acc[c]);
      }
      continue;
    }
    const auto* source = static_cast<const std::uint8_t*>(args.c) +
                         4 * ((store.row0 + r) * c_row + store.col0 * c_col);
    if (d_col == 1 && c_col == 1) {
      for (int c = 0; c < store.cols; ++c) {
        StoreAs<float>(d + 4 * c, alpha * acc[c] + beta * LoadAs<float>(source + 4 * c));
      }
    } else {
      for (int c = 0; c < store.cols; ++c) {
        StoreAs<float>(d + 4 * c * d_col,
                       alpha * acc[c] + beta * LoadAs<float>(source + 4 * c * c_col));
      }
    }
  }
}

Status CheckLaunch(const Kernel& kernel, const LaunchSpec& spec, const GemmShape& shape,
                   const Workspace& workspace, std::size_t needed) {
  const int max_swizzle = kernel.GetMaxSwizzle(shape);
  if (spec.swizzle < 0 || spec.swizzle > max_swizzle) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: swizzle = {}, at most {} for m = {}, n = {}, k = {}",
                            kernel.name(), spec.swizzle, max_swizzle, shape.m, shape.n, shape.k));
  }
  if (spec.splits != 1) {
    const int max_splits =
        kernel.GetMaxSplits(shape, spec.swizzle, workspace.barriers_size, workspace.partials_size);
    if (spec.splits < 1 || spec.splits > max_splits) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "{}: splits = {}, at most {} for m = {}, n = {}, k = {} with {} bytes of partials",
              kernel.name(), spec.splits, max_splits, shape.m, shape.n, shape.k,
              workspace.partials_size));
    }
  }
  if (workspace.partials_size < needed) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: workspace has {} bytes of partials, needs {}", kernel.name(),
                            workspace.partials_size, needed));
  }
  if (needed > 0 && reinterpret_cast<std::uintptr_t>(workspace.partials) % kAlignment != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: workspace partials are not aligned to {} bytes", kernel.name(),
                            kAlignment));
  }
  return {};
}

}  // namespace tilewright::gemm
