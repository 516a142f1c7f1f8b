#include "ops/gemm/cuda/gemm_q/families.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "artifact/spec_checks.h"
#include "core/formats/formats.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemm_q/layout.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "tilewright/cuda/gemm_q_params.h"

namespace tilewright {
namespace {

constexpr int kRegistersOfSm = 65536;

int PartsOf(const KernelSpec& spec) { return spec.params[0]; }
int CtasOf(const KernelSpec& spec) { return spec.params[1]; }

std::uint32_t SmemBytes(const KernelSpec& s) {
  const TypeInfo& weight = GetTypeInfo(s.type_b);
  return static_cast<std::uint32_t>(tw::GemmQSmemBytes(weight.block_bytes, weight.block_elements,
                                                       s.tile_m, s.tile_n, PartsOf(s), s.stages));
}

std::optional<Rejection> CheckTile(const KernelSpec& s) {
  constexpr std::array kRows{8, 16, 32, 64};
  constexpr std::array kColumns{32, 64, 128, 224, 256};
  constexpr std::array kWarps{4, 8, 14, 16};
  constexpr std::array kParts{1, 2, 4};
  if (auto no = CheckOneOf("tile_m", s.tile_m, kRows)) return no;
  if (auto no = CheckOneOf("tile_n", s.tile_n, kColumns)) return no;
  if (auto no = CheckRange("tile_k", s.tile_k, cuda::kGemmQTileK, cuda::kGemmQTileK)) return no;
  if (auto no = CheckOneOf("warps", s.warps, kWarps)) return no;
  if (auto no = CheckOneOf("param0", PartsOf(s), kParts)) return no;
  if (auto no = CheckRange("stages", s.stages, 2, 8)) return no;
  if (auto no = CheckRange("param1", CtasOf(s), 1, 4)) return no;
  const int strip_rows = 16 * s.warps / PartsOf(s);
  if (s.tile_n % strip_rows != 0 || s.tile_n / strip_rows > 4) {
    return Reject(Reason::kShape,
                  Format("tile_n = {}, {} groups of warps", s.tile_n, s.warps / PartsOf(s)),
                  "16 to 64 rows for each group, in steps of 16");
  }
  if (s.tile_m * (s.tile_n / strip_rows) > 128) {
    return Reject(Reason::kShape, Format("{} x {} sums of a group", s.tile_m, s.tile_n),
                  "64 in a thread at most");
  }
  if (s.split_k != 0 || s.cluster_m != 0 || s.cluster_n != 0 || s.params[2] != 0 ||
      s.params[3] != 0) {
    return Reject(Reason::kShape, "a field that gemm_q does not use is set",
                  "split_k, cluster_m, cluster_n, param2, param3 = 0");
  }
  if (s.warps * 32 * CtasOf(s) > 2048) {
    return Reject(Reason::kShape, Format("{} CTAs of {} warps", CtasOf(s), s.warps),
                  "at most 64 warps on an SM");
  }
  return std::nullopt;
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (s.arch.number < 80) return Reject(Reason::kDevice, s.arch.ToString(), "sm_80 or newer");
  if (auto no = CheckGemmQTypes(s)) return no;
  if (auto no = CheckTile(s)) return no;
  if (SmemBytes(s) > MaxSmemBytes(s.arch)) {
    return Reject(Reason::kWorkspace, Format("{} bytes of shared memory", SmemBytes(s)),
                  Format("at most {} on {}", MaxSmemBytes(s.arch), s.arch.ToString()));
  }
  return std::nullopt;
}

KernelLaunchShape Launch(const KernelSpec& spec) {
  return {.threads = spec.warps * 32u, .dynamic_smem_bytes = SmemBytes(spec)};
}

ResourceLimits Limits(const KernelSpec& spec) {
  const int fit = kRegistersOfSm / (spec.warps * 32 * CtasOf(spec)) / 8 * 8;
  return {.max_registers = static_cast<std::uint32_t>(std::min(fit, 255))};
}

/// x of a tile is read from the L2 for every tile_n rows of W, so that many of them are wanted; an
/// architecture whose shared memory is too small for a shape has the next one with fewer stages.
struct Shape {
  int tile_m, tile_n, warps, parts, stages, ctas;
};
constexpr std::array kShapes = {Shape{8, 64, 8, 4, 4, 2},   Shape{16, 64, 8, 4, 4, 2},
                                Shape{16, 128, 8, 2, 4, 1}, Shape{32, 64, 8, 4, 6, 1},
                                Shape{32, 128, 8, 2, 4, 1}, Shape{64, 64, 8, 4, 4, 1},
                                Shape{64, 128, 8, 2, 3, 1}};
/// For logits of f32.
constexpr std::array kWideResult = {Shape{16, 64, 8, 4, 4, 2}, Shape{32, 128, 8, 2, 4, 1}};

/// For gate and up as one product.
constexpr std::array kGated = {Shape{8, 64, 8, 4, 4, 2}, Shape{16, 64, 8, 4, 4, 2},
                               Shape{32, 128, 8, 2, 4, 1}, Shape{64, 128, 8, 2, 3, 1}};

/// More warps over more rows of W, of q8_0 alone, where they do not spill: for gate and up, of which
/// Llama-3.1-8B has 128 such tiles, and for logits. Other products have too few of them.
constexpr Shape kManyWarpsGated = {32, 224, 14, 2, 2, 1}, kManyWarpsWide = {32, 256, 16, 2, 2, 1};

/// The spec of a shape, with the stages and CTAs that there is room for; none with two stages: no
/// spec.
void AddSpec(std::vector<KernelSpec>& specs, DataType weight, DataType result, CudaArch arch,
             const Shape& shape, SpecEpilogue epilogue = SpecEpilogue::kAdd) {
  KernelSpec spec = GemmQSpecOf(kGemmQ, weight, result, arch, epilogue);
  spec.tile_m = static_cast<std::uint16_t>(shape.tile_m);
  spec.tile_n = static_cast<std::uint16_t>(shape.tile_n);
  spec.warps = static_cast<std::uint16_t>(shape.warps);
  spec.params = {shape.parts, shape.ctas, 0, 0};
  for (int stages = shape.stages; stages >= 2; --stages) {
    spec.stages = static_cast<std::uint8_t>(stages);
    if (Check(spec)) continue;
    specs.push_back(spec);
    return;
  }
}

std::vector<KernelSpec> Catalog(CudaArch arch) { return GemmQCatalog(arch, &GemmQSpecsForWeight); }

}  // namespace

std::optional<Rejection> CheckGemmQTypes(const KernelSpec& s) {
  if (s.type_a != DataType::kBF16) {
    return Reject(Reason::kType, Format("type_a = {}", DataTypeName(s.type_a)), "bf16");
  }
  if (!HasGemvCodes(s.type_b)) {
    return Reject(Reason::kType, Format("type_b = {}", DataTypeName(s.type_b)),
                  "a block format with Codes in gemv_codes.cuh");
  }
  if (s.type_d != DataType::kBF16 && s.type_d != DataType::kF32) {
    return Reject(Reason::kType, Format("type_d = {}", DataTypeName(s.type_d)), "bf16 or f32");
  }
  // One kernel serves products with and without an addend: it costs a branch for four results.
  const bool gated = s.epilogue == SpecEpilogue::kSwiGlu;
  if (!gated && s.epilogue != SpecEpilogue::kAdd) {
    return Reject(Reason::kEpilogue, std::string(SpecEpilogueName(s.epilogue)), "add or swiglu");
  }
  if (s.type_c != (gated ? DataType::kNone : s.type_d)) {
    return Reject(Reason::kType, Format("type_c = {}", DataTypeName(s.type_c)),
                  gated ? "none with the epilogue swiglu" : "that of the result");
  }
  if (s.order_a != Order::kRowMajor || s.order_b != Order::kColMajor) {
    return Reject(Reason::kOrder, "other orders", "k contiguous in both: A row-major, B col-major");
  }
  return std::nullopt;
}

KernelSpec GemmQSpecOf(const char* family, DataType weight, DataType result, CudaArch arch,
                       SpecEpilogue epilogue) {
  KernelSpec spec;
  spec.family = family;
  spec.arch = arch;
  spec.type_a = DataType::kBF16;
  spec.type_b = weight;
  spec.type_c = epilogue == SpecEpilogue::kAdd ? result : DataType::kNone;
  spec.type_d = result;
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.epilogue = epilogue;
  spec.tile_k = cuda::kGemmQTileK;
  return spec;
}

std::vector<KernelSpec> GemmQCatalog(CudaArch arch,
                                     std::vector<KernelSpec> (*of_weight)(DataType, CudaArch)) {
  std::vector<KernelSpec> specs;
  for (const BlockFormat& format : kFormats) {
    const std::vector<KernelSpec> own = of_weight(format.type, arch);
    specs.insert(specs.end(), own.begin(), own.end());
  }
  return specs;
}

KernelFamily GemmQFamily() {
  return {.name = kGemmQ,
          .launch_abi = 2,
          .source = "ops/gemm/cuda/gemm_q/gemm_q.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &Launch,
          .limits = &Limits,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddGemmQFamily(KernelFamilies& families) { return families.Add(GemmQFamily()); }

std::vector<KernelSpec> GemmQSpecsForWeight(DataType weight, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80 || !HasGemvCodes(weight)) return specs;
  // On other architectures the compiler spills there.
  const auto spills = [&](const Shape& shape) { return shape.tile_m == 64 && arch.number != 90; };
  for (const Shape& shape : kShapes) {
    if (!spills(shape)) AddSpec(specs, weight, DataType::kBF16, arch, shape);
  }
  for (const Shape& shape : kGated) {
    if (!spills(shape)) AddSpec(specs, weight, DataType::kBF16, arch, shape, SpecEpilogue::kSwiGlu);
  }
  for (const Shape& shape : kWideResult) AddSpec(specs, weight, DataType::kF32, arch, shape);
  if (weight == DataType::kQ8_0 && arch.number == 90) {
    AddSpec(specs, weight, DataType::kBF16, arch, kManyWarpsGated, SpecEpilogue::kSwiGlu);
    AddSpec(specs, weight, DataType::kF32, arch, kManyWarpsWide);
  }
  return specs;
}

}  // namespace tilewright
