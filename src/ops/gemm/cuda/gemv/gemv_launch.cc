#include "ops/gemm/cuda/gemv/gemv_launch.h"

#include <cstdint>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemm_args.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "tilewright/cuda/gemv_params.h"

namespace tilewright {
namespace {

bool Misaligned(const void* base, std::int64_t stride_bytes, std::int64_t alignment) {
  const auto bits =
      reinterpret_cast<std::uintptr_t>(base) | static_cast<std::uint64_t>(stride_bytes);
  return bits % static_cast<std::uint64_t>(alignment) != 0;
}

/// What blocks of weights need beyond CheckGemmArgs.
std::optional<Rejection> CheckBlocks(const KernelSpec& spec, const GemmArgs& args) {
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  const std::int32_t k = args.a_layout.cols;
  if (k % weight.block_elements != 0) {
    return Reject(Reason::kShape, Format("k = {}", k),
                  Format("a multiple of {} for {}", weight.block_elements, weight.name));
  }
  const auto row_bytes = static_cast<std::int64_t>(BytesOf(spec.type_b, args.b_layout.ld));
  const int align_w = cuda::GemvRowAlignment(weight.block_bytes);
  if (Misaligned(args.b, row_bytes, align_w)) {
    return Reject(Reason::kAlignment, Format("B at {}, rows of {} bytes", args.b, row_bytes),
                  Format("multiples of {}", align_w));
  }
  const int bytes_x = GetTypeInfo(spec.type_a).block_bytes;
  if (Misaligned(args.a, args.a_layout.ld * bytes_x, 4 * bytes_x)) {
    return Reject(Reason::kAlignment, Format("A at {}, ld = {}", args.a, args.a_layout.ld),
                  "rows aligned to four elements");
  }
  return std::nullopt;
}

/// What kernels that normalise x need of the weights of the norm.
std::optional<Rejection> CheckNorm(const KernelSpec& spec, const GemmArgs& args) {
  if (!GemvNormalises(spec)) return std::nullopt;
  if (args.type_norm == DataType::kF32 && args.norm != nullptr && !Misaligned(args.norm, 0, 16))
    return std::nullopt;
  return Reject(Reason::kPrologue,
                Format("norm of {} at {}", DataTypeName(args.type_norm), args.norm),
                "f32 at a multiple of 16");
}

/// What streams of whole lines need beyond CheckGemmArgs.
std::optional<Rejection> CheckStream(const KernelSpec& spec, const GemmArgs& args) {
  const std::int32_t k = args.a_layout.cols;
  if (k % cuda::kGemvStreamPack != 0 || k > GemvStreamMaxK(spec)) {
    return Reject(
        Reason::kShape, Format("k = {}", k),
        Format("a multiple of {}, at most {}", cuda::kGemvStreamPack, GemvStreamMaxK(spec)));
  }
  const auto line_a = static_cast<std::int64_t>(BytesOf(spec.type_a, args.a_layout.ld));
  const auto line_b = static_cast<std::int64_t>(BytesOf(spec.type_b, args.b_layout.ld));
  if (Misaligned(args.a, line_a, 16) || Misaligned(args.b, line_b, 16)) {
    return Reject(Reason::kAlignment,
                  Format("A at {}, rows of {} bytes, B at {}, rows of {} bytes", args.a, line_a,
                         args.b, line_b),
                  "multiples of 16");
  }
  return CheckNorm(spec, args);
}

/// What gemv_int8 needs beyond CheckGemmArgs.
std::optional<Rejection> CheckInt8(const KernelSpec& spec, const GemmArgs& args) {
  const GemmShape shape = ShapeOf(args);
  if (shape.m > spec.tile_m) {
    return Reject(Reason::kShape, Format("m = {}", shape.m), Format("at most {}", spec.tile_m));
  }
  const int granule = GemvInt8KGranule(spec);
  if (shape.k % granule != 0 || shape.k > GemvInt8MaxK(spec)) {
    return Reject(Reason::kShape, Format("k = {}", shape.k),
                  Format("a multiple of {}, at most {}", granule, GemvInt8MaxK(spec)));
  }
  const auto line_b = static_cast<std::int64_t>(BytesOf(spec.type_b, args.b_layout.ld));
  const int align_w = GemvInt8RowAlignment(spec);
  if (Misaligned(args.b, line_b, align_w)) {
    return Reject(Reason::kAlignment, Format("B at {}, rows of {} bytes", args.b, line_b),
                  Format("multiples of {}", align_w));
  }
  const auto line_a = static_cast<std::int64_t>(BytesOf(spec.type_a, args.a_layout.ld));
  if (Misaligned(args.a, line_a, 16)) {
    return Reject(Reason::kAlignment, Format("A at {}, rows of {} bytes", args.a, line_a),
                  "multiples of 16");
  }
  return CheckNorm(spec, args);
}

cuda::KernelParams ParamsOf(const KernelSpec& spec, const GemmArgs& args) {
  const GemmShape shape = ShapeOf(args);
  return cuda::KernelParams(cuda::GemvParams{
      .x = args.a,
      .w = args.b,
      .c = args.c,
      .y = args.d,
      .ldx = args.a_layout.ld,
      .ldc = args.c_layout.ld,
      .ldy = args.d_layout.ld,
      .w_row_bytes = static_cast<long long>(BytesOf(spec.type_b, args.b_layout.ld)),
      .m = shape.m,
      .n = shape.n,
      .k = shape.k,
      .alpha = args.alpha,
      .beta = args.beta,
      .w_constant = args.constant_b ? 1 : 0,
      .norm = args.norm,
      .epsilon = args.epsilon,
  });
}

}  // namespace

cuda::LaunchResult GemvLaunch(const KernelSpec& spec, const GemmArgs& args) {
  const KernelFamily family =
      GetTypeInfo(spec.type_b).block_quantised ? GemvQuantisedFamily() : GemvBf16Family();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckGemmArgs(spec, args)) return tl::unexpected(*std::move(no));
  if (args.a_layout.ld > cuda::kGemvMaxLdx) {
    return tl::unexpected(*Reject(Reason::kShape, Format("ld of A = {}", args.a_layout.ld),
                                  Format("at most {}", cuda::kGemvMaxLdx)));
  }
  if (GetTypeInfo(spec.type_b).block_quantised) {
    if (auto no = CheckBlocks(spec, args)) return tl::unexpected(*std::move(no));
  }
  const GemmShape shape = ShapeOf(args);
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {cuda::GemvGridX(shape.n, spec.tile_n), cuda::GemvGridY(shape.m, spec.tile_m), 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = ParamsOf(spec, args);
  return cuda::CheckedLaunch(launch);
}

cuda::LaunchResult GemvStreamLaunch(const KernelSpec& spec, const GemmArgs& args, int sm_count) {
  const KernelFamily family = GemvStreamFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckGemmArgs(spec, args)) return tl::unexpected(*std::move(no));
  if (auto no = CheckStream(spec, args)) return tl::unexpected(*std::move(no));
  const GemmShape shape = ShapeOf(args);
  cuda::CudaLaunch launch;
  launch.grid = {cuda::GemvStreamGridX(args.d_layout.cols, sm_count, spec.params[1]),
                 static_cast<std::uint32_t>(shape.m), 1};
  launch.block = {family.launch(spec).threads, 1, 1};
  launch.dynamic_smem_bytes =
      cuda::GemvStreamSmem(shape.k, static_cast<int>(BytesOf(spec.type_a, 1)), spec.warps,
                           spec.params[0], spec.stages, GemvNormalises(spec));
  launch.params = ParamsOf(spec, args);
  return cuda::CheckedLaunch(launch);
}

cuda::LaunchResult GemvInt8Launch(const KernelSpec& spec, const GemmArgs& args, int sm_count) {
  const KernelFamily family = GemvInt8Family();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckGemmArgs(spec, args)) return tl::unexpected(*std::move(no));
  if (auto no = CheckInt8(spec, args)) return tl::unexpected(*std::move(no));
  const int columns = spec.params[0] / (spec.epilogue == SpecEpilogue::kSwiGlu ? 2 : 1);
  const int units = (args.d_layout.cols + columns - 1) / columns;
  cuda::CudaLaunch launch;
  launch.grid = {cuda::GemvStreamGridX(units, sm_count, 1), 1, 1};
  launch.block = {spec.warps * 32u, 1, 1};
  launch.dynamic_smem_bytes =
      GemvInt8LaunchSmem(spec, args.b_layout.cols, args.a_layout.cols, sm_count);
  launch.params = ParamsOf(spec, args);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
