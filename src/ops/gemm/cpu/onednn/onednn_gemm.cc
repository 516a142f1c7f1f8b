#include "ops/gemm/cpu/onednn/onednn_gemm.h"

#include <dnnl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "ops/gemm/cpu/common.h"
#include "ops/gemm/cpu/onednn/library.h"
#include "tilewright/device.h"

namespace tilewright::gemm {
namespace {

KernelInfo OneDnnInfo() {
  KernelInfo info;
  info.name = FormatKernelId({.a = "f32",
                              .b = "f32",
                              .c = "f32",
                              .orders = "xx",
                              .isa = "onednn",
                              .tile = "1x1",
                              .pack = "plain",
                              .flag = "pieces"});
  info.fingerprint = OneDnnFingerprint();
  info.provider = Provider::kVendor;
  info.features = FeaturesOfThisMachine();
  return info;
}

KernelDesc OneDnnDesc() {
  const std::uint32_t both = Bit(Order::kRowMajor) | Bit(Order::kColMajor);
  KernelDesc desc;
  desc.type_a = desc.type_b = desc.type_c = Bit(DataType::kF32);
  desc.order_a = desc.order_b = desc.order_c = both;
  return desc;
}

// D starts as C, which sgemm then scales and adds to.
void CopyC(const GemmArgs& args) {
  const MatrixLayout& c = args.c_layout;
  const bool row_major = c.order == Order::kRowMajor;
  const int lines = row_major ? c.rows : c.cols;
  const auto bytes = static_cast<std::size_t>(row_major ? c.cols : c.rows) * 4;
  for (int i = 0; i < lines; ++i) {
    std::memcpy(static_cast<char*>(args.d) + 4 * i * args.d_layout.ld,
                static_cast<const char*>(args.c) + 4 * i * c.ld, bytes);
  }
}

// sgemm's operands, row-major: Z[rows][cols] = alpha * X * Y + beta * Z.
struct Sgemm {
  char trans_x, trans_y;
  std::int64_t rows, cols, k;
  const float* x;
  const float* y;
  float* z;
  std::int64_t ld_x, ld_y, ld_z;
};

Sgemm MakeSgemm(const GemmArgs& args) {
  const GemmShape shape = ShapeOf(args);
  const auto* a = static_cast<const float*>(args.a);
  const auto* b = static_cast<const float*>(args.b);
  auto* d = static_cast<float*>(args.d);
  const bool a_rows = args.a_layout.order == Order::kRowMajor;
  const bool b_rows = args.b_layout.order == Order::kRowMajor;
  const std::int64_t ld_a = args.a_layout.ld, ld_b = args.b_layout.ld, ld_d = args.d_layout.ld;
  if (args.d_layout.order == Order::kRowMajor) {
    return {a_rows ? 'N' : 'T',
            b_rows ? 'N' : 'T',
            shape.m,
            shape.n,
            shape.k,
            a,
            b,
            d,
            ld_a,
            ld_b,
            ld_d};
  }
  // A column-major D is the row-major D^T = B^T A^T.
  return {
      b_rows ? 'T' : 'N', a_rows ? 'T' : 'N', shape.n, shape.m, shape.k, b, a, d, ld_b, ld_a, ld_d};
}

// D in pieces along its longer side. Their number follows from the shape alone, never from the
// workers, so that the bits do not depend on these either; a power of two, which most numbers of
// workers divide. Every piece packs the whole of the operand along the other side once more, which
// wide pieces spread over more work; with few lines on that side there is little to pack.
struct Pieces {
  bool along_rows = false;
  int count = 1;
  std::int64_t step = 0;
};
Pieces PiecesOf(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kMost = 64, kFewLines = 16, kUnit = 16;
  Pieces pieces;
  pieces.along_rows = rows > cols;
  const std::int64_t side = rows > cols ? rows : cols, other = rows > cols ? cols : rows;
  std::int64_t count = side / (other <= kFewLines ? 96 : 192);
  count = count < 1 ? 1 : count > kMost ? kMost : count;
  count = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count)));
  pieces.step = ((side + count - 1) / count + kUnit - 1) / kUnit * kUnit;
  pieces.count = static_cast<int>((side + pieces.step - 1) / pieces.step);
  return pieces;
}

dnnl_status_t RunPiece(const Sgemm& all, const Pieces& pieces, int piece, float alpha, float beta) {
  Sgemm part = all;
  const std::int64_t first = piece * pieces.step;
  const auto length = [&](std::int64_t side) {
    return side - first < pieces.step ? side - first : pieces.step;
  };
  if (pieces.along_rows) {
    part.rows = length(all.rows);
    part.x += all.trans_x == 'N' ? first * all.ld_x : first;
    part.z += first * all.ld_z;
  } else {
    part.cols = length(all.cols);
    part.y += all.trans_y == 'N' ? first : first * all.ld_y;
    part.z += first;
  }
  return dnnl_sgemm(part.trans_x, part.trans_y, part.rows, part.cols, part.k, alpha, part.x,
                    part.ld_x, part.y, part.ld_y, beta, part.z, part.ld_z);
}

}  // namespace

OneDnnGemm::OneDnnGemm() : CpuKernel(OneDnnInfo(), OneDnnDesc()) {}

std::optional<Rejection> OneDnnGemm::IsFeasible(const GemmDesc& p) const {
  if (auto no = Kernel::IsFeasible(p)) return no;
  return CheckDense(p);
}

double OneDnnGemm::EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                              const DeviceSpec& device) const {
  const int pieces = PiecesOf(p.m, p.n).count;
  double workers = WorkersOf(spec.config, device.cores);
  if (workers > pieces) workers = pieces;
  const double bytes = 4.0 * (static_cast<double>(p.n) * p.k + static_cast<double>(p.m) * p.k +
                              static_cast<double>(p.m) * p.n);
  // Weights are arranged anew by every call, which takes as long as so many rows of products. (Two cores of a Zen 5, us, 4, 8,
  // 12 and 16 rows: 2048 x 2048 461, 542, 677 and 1,005, 16384 x 2048 4,214, 5,081, 6,546 and 8,741, of which a row is 22 and 177.)
  constexpr int kArrangeRows = 20;
  const double compute_us =
      2.0 * (p.m + kArrangeRows) * p.n * p.k / (0.7 * device.f32_gflop_s * workers) * 1e-3;
  const double memory_us = bytes / ReadRate(device, bytes) * 1e-3;
  return (compute_us > memory_us ? compute_us : memory_us) + 5.0 + 0.5 * pieces;  // setting up
}

Result<std::shared_ptr<const BoundLaunch<GemmOp>>> OneDnnGemm::BindLaunch(const GemmDesc& p,
                                                                          const LaunchSpec&,
                                                                          Device&) const {
  // Which of its kernels oneDNN compiles depends on the rows and columns of a piece, not on k: a
  // piece of this problem, cut short along k, and the smallest product, which tails are made of.
  constexpr std::int64_t kMostLines = 512, kMostDepth = 256, kSmallest = 16;
  const bool row_major = p.order_c == Order::kRowMajor;
  std::int64_t rows = row_major ? p.m : p.n, cols = row_major ? p.n : p.m;
  const Pieces pieces = PiecesOf(rows, cols);
  std::int64_t& side = pieces.along_rows ? rows : cols;
  side = std::min(side, pieces.step);
  const OneOpenMpThread alone;
  for (const auto& [m, n, k] : {std::array{std::min(rows, kMostLines), std::min(cols, kMostLines),
                                           std::min<std::int64_t>(p.k, kMostDepth)},
                                std::array{kSmallest, kSmallest, kSmallest}}) {
    const std::vector<float> x(static_cast<std::size_t>(m * k)), y(static_cast<std::size_t>(k * n));
    std::vector<float> z(static_cast<std::size_t>(m * n));
    const dnnl_status_t status =
        dnnl_sgemm('N', 'T', m, n, k, 1.0f, x.data(), k, y.data(), k, 0.0f, z.data(), n);
    if (status != dnnl_success) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("{}: oneDNN returned status {}", name(), static_cast<int>(status)));
    }
  }
  return std::shared_ptr<const BoundLaunch<GemmOp>>();
}

Status OneDnnGemm::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                            Stream stream) {
  const GemmShape shape = ShapeOf(args);
  if (Status ok = CheckLaunch(*this, spec, shape, workspace, 0); !ok) return ok;
  if (args.beta != 0.0f && args.c != args.d) CopyC(args);
  const Sgemm all = MakeSgemm(args);
  const Pieces pieces = PiecesOf(all.rows, all.cols);
  std::atomic<int> status{dnnl_success};
  stream.exec().Run(pieces.count, [&](int piece, int) {
    const OneOpenMpThread alone;
    const dnnl_status_t result = RunPiece(all, pieces, piece, args.alpha, args.beta);
    if (result != dnnl_success) status.store(result, std::memory_order_relaxed);
  });
  if (status != dnnl_success) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{}: oneDNN returned status {}", name(), status.load()));
  }
  return {};
}

}  // namespace tilewright::gemm
