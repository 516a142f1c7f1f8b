#include "ops/gemm/cpu/onednn_gemm.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include <cstring>

#include "ops/gemm/cpu/common.h"

namespace tilewright::gemm {
namespace {

KernelInfo OneDnnInfo() {
  const dnnl_version_t* version = dnnl_version();
  KernelInfo info;
  info.name = FormatKernelId({.a = "f32",
                              .b = "f32",
                              .c = "f32",
                              .orders = "xx",
                              .isa = "onednn",
                              .tile = "1x1",
                              .pack = "plain"});
  info.fingerprint = fmt::format("onednn-{}.{}.{}-{}", version->major, version->minor,
                                 version->patch, version->hash);
  info.provider = Provider::kVendor;
  info.deterministic = false;  // it promises nothing of the kind across thread counts
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

}  // namespace

OneDnnGemm::OneDnnGemm() : Kernel(OneDnnInfo(), OneDnnDesc()) {}

std::optional<Rejection> OneDnnGemm::IsFeasible(const GemmDesc& p) const {
  if (auto no = Kernel::IsFeasible(p)) return no;
  return CheckDense(p);
}

double OneDnnGemm::EstimateUs(const GemmDesc& p, const LaunchSpec&,
                              const DeviceSpec& device) const {
  const double workers = p.threads < 1 ? 1 : p.threads < device.cores ? p.threads : device.cores;
  const double bytes = 4.0 * (static_cast<double>(p.n) * p.k + static_cast<double>(p.m) * p.k +
                              static_cast<double>(p.m) * p.n);
  const double compute_us = 2.0 * p.m * p.n * p.k / (0.7 * device.f32_gflop_s * workers) * 1e-3;
  const double memory_us = bytes / ReadRate(device, bytes) * 1e-3;
  return (compute_us > memory_us ? compute_us : memory_us) + 40.0;  // waking and joining its team
}

Status OneDnnGemm::Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                          Stream stream) {
  const GemmShape shape = ShapeOf(args);
  if (Status ok = CheckLaunch(*this, spec, shape, workspace, 0); !ok) return ok;
  if (args.beta != 0.0f && args.c != args.d) CopyC(args);
  omp_set_num_threads(
      Workers(stream));  // a variable of the calling thread, read by the next parallel region
  const auto* a = static_cast<const float*>(args.a);
  const auto* b = static_cast<const float*>(args.b);
  auto* d = static_cast<float*>(args.d);
  const auto word = [](const MatrixLayout& layout) {
    return layout.order == Order::kRowMajor ? 'N' : 'T';
  };
  const auto flipped = [](const MatrixLayout& layout) {
    return layout.order == Order::kRowMajor ? 'T' : 'N';
  };
  // sgemm is row-major: a column-major D is the row-major D^T = B^T A^T.
  const dnnl_status_t status =
      args.d_layout.order == Order::kRowMajor
          ? dnnl_sgemm(word(args.a_layout), word(args.b_layout), shape.m, shape.n, shape.k,
                       args.alpha, a, args.a_layout.ld, b, args.b_layout.ld, args.beta, d,
                       args.d_layout.ld)
          : dnnl_sgemm(flipped(args.b_layout), flipped(args.a_layout), shape.n, shape.m, shape.k,
                       args.alpha, b, args.b_layout.ld, a, args.a_layout.ld, args.beta, d,
                       args.d_layout.ld);
  if (status != dnnl_success) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{}: oneDNN returned status {}", name(), static_cast<int>(status)));
  }
  return {};
}

}  // namespace tilewright::gemm
