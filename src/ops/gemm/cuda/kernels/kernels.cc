#include "ops/gemm/cuda/kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/text.h"
#include "engine/compiled/compiled_kernel.h"
#include "ops/gemm/base/cpu_kernel.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_hopper_shares.h"
#include "ops/gemm/cuda/gemm_launch.h"
#include "ops/gemm/cuda/gemm_mma_splits.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_q/gemm_q_launch.h"
#include "ops/gemm/cuda/gemm_qr/families.h"
#include "ops/gemm/cuda/gemm_qr/gemm_qr_launch.h"
#include "ops/gemm/cuda/gemm_qw/families.h"
#include "ops/gemm/cuda/gemm_qw/gemm_qw_launch.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/gemv_launch.h"
#include "ops/gemm/cuda/grouped/families.h"
#include "ops/gemm/cuda/grouped/grouped_launch.h"
#include "ops/gemm/cuda/kernels/cost.h"
#include "tilewright/cuda/gemm_params.h"
#include "tilewright/cuda/gemm_q_params.h"
#include "tilewright/cuda/gemv_params.h"
#include "tilewright/cuda/grouped_gemm_params.h"

namespace tilewright {
namespace {

/// What the problem promises of an operand's address and lines, against what a kernel needs.
std::optional<Rejection> CheckAlignment(const char* operand, std::uint8_t promised_log2, int need) {
  const int promised = 1 << promised_log2;
  if (promised >= need) return std::nullopt;
  return Rejection{Reason::kAlignment,
                   Format("{} aligned to {} bytes that the problem promises", operand, promised),
                   Format("{} bytes", need)};
}

std::optional<Rejection> CheckExtents(const GemmDesc& desc) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max() - 1024;
  for (const auto& [name, extent] : {std::pair{"m", desc.m}, {"n", desc.n}, {"k", desc.k}}) {
    if (extent > kMost) {
      return Rejection{Reason::kShape, Format("{} = {}", name, extent),
                       Format("at most {}", kMost)};
    }
  }
  return std::nullopt;
}

std::optional<Rejection> MmaFeasible(const KernelSpec& spec, const GemmDesc& desc) {
  if (auto no = CheckExtents(desc)) return no;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 1024;
  const int cluster = std::max<int>(spec.cluster_m, 1);
  const std::int64_t tiles =
      cuda::GemmTiles(desc.m, desc.n, spec.tile_m * cluster, spec.tile_n) * cluster;
  if (tiles <= kMost) return std::nullopt;
  return Rejection{Reason::kShape, Format("{} output tiles", tiles), Format("at most {}", kMost)};
}

/// TMA reads A and B; D it writes where that is aligned, and threads do elsewhere.
std::optional<Rejection> HopperFeasible(const KernelSpec& spec, const GemmDesc& desc) {
  constexpr int kMapAlignment = 16;
  if (auto no = CheckAlignment("A", desc.align_a, kMapAlignment)) return no;
  if (auto no = CheckAlignment("B", desc.align_b, kMapAlignment)) return no;
  return MmaFeasible(spec, desc);
}

/// Where the grid has a row of CTAs for every `tile_m` rows.
std::optional<Rejection> CheckGridRows(const GemmDesc& desc, int tile_m) {
  constexpr std::int64_t kMostRows = 65535;  // of CTAs
  const std::int64_t most = kMostRows * tile_m;
  if (desc.m <= most) return std::nullopt;
  return Rejection{Reason::kShape, Format("m = {}", desc.m), Format("at most {}", most)};
}

std::optional<Rejection> GemvFeasible(const KernelSpec& spec, const GemmDesc& desc) {
  if (auto no = CheckExtents(desc)) return no;
  if (auto no = CheckGridRows(desc, spec.tile_m)) return no;
  if (desc.k > cuda::kGemvMaxLdx) {
    return Rejection{Reason::kShape, Format("k = {}", desc.k),
                     Format("at most {}", cuda::kGemvMaxLdx)};
  }
  const TypeInfo& weight = GetTypeInfo(spec.type_b);
  if (!weight.block_quantised) return std::nullopt;
  if (auto no = CheckAlignment("A", desc.align_a, 4 * GetTypeInfo(spec.type_a).block_bytes)) {
    return no;
  }
  return CheckAlignment("B", desc.align_b, cuda::GemvRowAlignment(weight.block_bytes));
}

/// What kernels that normalise rows need of the weights of the norm.
std::optional<Rejection> CheckNorm(const GemmDesc& desc) {
  if (desc.prologue == Prologue::kNone) return std::nullopt;
  if (desc.type_norm == DataType::kF32) return CheckAlignment("norm", desc.align_norm, 16);
  return Rejection{Reason::kPrologue, Format("type_norm = {}", DataTypeName(desc.type_norm)),
                   "f32"};
}

std::optional<Rejection> StreamFeasible(const KernelSpec& spec, const GemmDesc& desc) {
  if (auto no = CheckExtents(desc)) return no;
  if (auto no = CheckGridRows(desc, 1)) return no;
  if (desc.k % cuda::kGemvStreamPack != 0 || desc.k > GemvStreamMaxK(spec)) {
    return Rejection{
        Reason::kShape, Format("k = {}", desc.k),
        Format("a multiple of {}, at most {}", cuda::kGemvStreamPack, GemvStreamMaxK(spec))};
  }
  if (auto no = CheckNorm(desc)) return no;
  if (auto no = CheckAlignment("A", desc.align_a, 16)) return no;
  return CheckAlignment("B", desc.align_b, 16);
}

std::optional<Rejection> Int8Feasible(const KernelSpec& spec, const GemmDesc& desc) {
  if (auto no = CheckExtents(desc)) return no;
  const int granule = GemvInt8KGranule(spec);
  if (desc.k % granule != 0 || desc.k > GemvInt8MaxK(spec)) {
    return Rejection{Reason::kShape, Format("k = {}", desc.k),
                     Format("a multiple of {}, at most {}", granule, GemvInt8MaxK(spec))};
  }
  if (auto no = CheckNorm(desc)) return no;
  if (auto no = CheckAlignment("A", desc.align_a, 16)) return no;
  return CheckAlignment("B", desc.align_b, GemvInt8RowAlignment(spec));
}

GemmShape ShapeOf(const GemmDesc& desc) { return {.m = desc.m, .n = desc.n, .k = desc.k}; }

std::optional<Rejection> GemmQFeasible(const KernelSpec& spec, const GemmDesc& desc) {
  if (auto no = CheckExtents(desc)) return no;
  // With the most splits that there can be.
  constexpr std::int64_t kMostTiles = std::numeric_limits<std::int32_t>::max() / 16;
  const std::int64_t tiles = cuda::GemmQTiles(desc.m, desc.n, spec.tile_m, spec.tile_n);
  if (tiles > kMostTiles) {
    return Rejection{Reason::kShape, Format("{} output tiles", tiles),
                     Format("at most {}", kMostTiles)};
  }
  if (desc.k > cuda::kGemvMaxLdx) {
    return Rejection{Reason::kShape, Format("k = {}", desc.k),
                     Format("at most {}", cuda::kGemvMaxLdx)};
  }
  constexpr int kCopyAlignment = 16;
  if (auto no = CheckAlignment("A", desc.align_a, kCopyAlignment)) return no;
  return CheckAlignment("B", desc.align_b,
                        cuda::GemvRowAlignment(GetTypeInfo(spec.type_b).block_bytes));
}

/// The copy engine reads B; x is read 16 bytes at a time.
std::optional<Rejection> GemmQwFeasible(const KernelSpec& spec, const GemmDesc& desc) {
  if (auto no = CheckExtents(desc)) return no;
  constexpr std::int64_t kMostTiles = std::numeric_limits<std::int32_t>::max();
  const std::int64_t tiles = cuda::GemmQTiles(desc.m, desc.n, spec.tile_m, spec.tile_n);
  if (tiles > kMostTiles) {
    return Rejection{Reason::kShape, Format("{} output tiles", tiles),
                     Format("at most {}", kMostTiles)};
  }
  constexpr int kCopyAlignment = 16;
  if (auto no = CheckAlignment("A", desc.align_a, kCopyAlignment)) return no;
  return CheckAlignment("B", desc.align_b, kCopyAlignment);
}

std::optional<Rejection> GemmQrFeasible(const KernelSpec& spec, const GemmDesc& desc) {
  if (auto no = GemmQwFeasible(spec, desc)) return no;
  return CheckGridRows(desc, spec.tile_m);
}

WorkspaceSize WorkspaceOfGemmQw(const KernelSpec& spec, const GemmDesc& desc,
                                const DeviceSpec& device) {
  return GemmQwWorkspace(spec, ShapeOf(desc), device);
}

WorkspaceSize WorkspaceOfGemmQr(const KernelSpec& spec, const GemmDesc& desc,
                                const DeviceSpec& device) {
  return GemmQrWorkspace(spec, ShapeOf(desc), device);
}

WorkspaceSize WorkspaceOfGemmQ(const KernelSpec& spec, const GemmDesc& desc,
                               const DeviceSpec& device) {
  return GemmQWorkspace(spec, ShapeOf(desc), device);
}

WorkspaceSize WorkspaceOfMma(const KernelSpec& spec, const GemmDesc& desc,
                             const DeviceSpec& device) {
  return GemmMmaWorkspace(spec, ShapeOf(desc), device);
}

Status LaunchMma(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                 const Workspace& workspace, Stream stream) {
  return kernel.Launch(GemmMmaLaunch(spec, args, kernel.device(), workspace), stream);
}
Status LaunchSimt(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                  Stream stream) {
  return kernel.Launch(GemmSimtLaunch(spec, args), stream);
}
WorkspaceSize WorkspaceOfHopper(const KernelSpec& spec, const GemmDesc& desc,
                                const DeviceSpec& device) {
  return GemmHopperWorkspace(spec, ShapeOf(desc), device);
}

Status LaunchHopper(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                    const Workspace& workspace, Stream stream) {
  return kernel.Launch(GemmHopperLaunch(spec, args, kernel.device(), workspace), stream);
}
Status LaunchGemv(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                  Stream stream) {
  return kernel.Launch(GemvLaunch(spec, args), stream);
}

Status LaunchStream(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                    Stream stream) {
  return kernel.Launch(GemvStreamLaunch(spec, args, std::max(kernel.device().sm_count, 1)), stream);
}

Status LaunchInt8(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                  Stream stream) {
  return kernel.Launch(GemvInt8Launch(spec, args, std::max(kernel.device().sm_count, 1)), stream);
}

Status LaunchGemmQ(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                   const Workspace& workspace, Stream stream) {
  return kernel.Launch(GemmQLaunch(spec, args, kernel.device(), workspace), stream);
}

Status LaunchGemmQw(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                    const Workspace& workspace, Stream stream) {
  return kernel.Launch(GemmQwLaunch(spec, args, kernel.device(), workspace), stream);
}

Status LaunchGemmQr(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                    const Workspace& workspace, Stream stream) {
  return kernel.Launch(GemmQrLaunch(spec, args, kernel.device(), workspace), stream);
}

/// What the kernel of a spec computes. Without the epilogue add there is no C; with it D has C's
/// type, or C cannot be had from a GemmDesc.
KernelDesc DescOf(const KernelSpec& spec) {
  KernelDesc desc;
  desc.type_a = Bit(spec.type_a);
  desc.type_b = Bit(spec.type_b);
  desc.type_c = Bit(spec.type_d);
  desc.order_a = Bit(spec.order_a);
  desc.order_b = Bit(spec.order_b);
  desc.scaling = Bit(Scaling::kOneZero);
  if (spec.epilogue == SpecEpilogue::kAdd && spec.type_c == spec.type_d) {
    desc.scaling |= Bit(Scaling::kOneOne) | Bit(Scaling::kAny);
  }
  if (spec.epilogue == SpecEpilogue::kSwiGlu) {
    desc.epilogue = Bit(Epilogue::kGatedSilu);
    // More rows read W again: a product on tiles and the function apart take less.
    desc.max_m = spec.tile_m;
    desc.align_n = 2 * kGatedBlock;
  }
  if (spec.family == FamilyName("gemv_int8")) {
    desc.activations = Precision::kI8;
    desc.max_m = spec.tile_m;
  }
  if (GemvNormalises(spec)) {
    desc.prologue = Bit(Prologue::kRmsNorm);
    // More rows of x would read W again, for each of them.
    desc.max_m = spec.tile_m;
  }
  desc.tile_m = std::max<std::int32_t>(spec.tile_m, 1);
  desc.tile_n = std::max<std::int32_t>(spec.tile_n, 1);
  desc.tile_k = std::max<std::int32_t>(spec.tile_k, 1);
  desc.align_k = GetTypeInfo(spec.type_b).block_elements;
  desc.stages = std::max<int>(spec.stages, 1);
  return desc;
}

/// What says whether a dense kernel takes a problem, and how long it takes.
struct DenseFunctions {
  std::optional<Rejection> (*feasible)(const KernelSpec&, const GemmDesc&);
  double (*estimate_us)(const KernelSpec&, const GemmDesc&, const DeviceSpec&);
};
DenseFunctions FunctionsOf(const KernelSpec& dense) {
  if (dense.family == GemvInt8Family().name) return {&Int8Feasible, &EstimateInt8};
  if (dense.family == GemvStreamFamily().name) return {&StreamFeasible, &EstimateStream};
  if (dense.family == GemvQuantisedFamily().name) return {&GemvFeasible, &EstimateGemv};
  if (dense.family == GemmQFamily().name) return {&GemmQFeasible, &EstimateGemmQ};
  return {&MmaFeasible, &EstimateSimt};
}

/// The dense problem of m rows that a kernel of groups solves for each, with n rows of weights.
GemmDesc DenseDescOf(GemmDesc desc, std::int32_t m, double n) {
  constexpr double kMost = std::numeric_limits<std::int32_t>::max() - 1024;
  desc.m = m;
  desc.n = static_cast<std::int32_t>(std::min(n, kMost));
  desc.num = 1;
  desc.group_axis = -1;
  desc.striding_a = desc.striding_b = desc.striding_c = Striding::kFlat;
  return desc;
}

std::optional<Rejection> GroupedFeasible(const KernelSpec& spec, const GemmDesc& desc) {
  if (desc.num < 2 || desc.group_axis != 0) {
    return Rejection{Reason::kStriding,
                     Format("num = {}, group_axis = {}", desc.num, desc.group_axis),
                     "num at least 2, groups along m"};
  }
  const bool by_row = GroupsByRow(spec);
  if (by_row && desc.m > kMostRowsOfGroups) {
    return Rejection{Reason::kShape, Format("m = {}", desc.m),
                     Format("at most {}", kMostRowsOfGroups)};
  }
  const KernelSpec dense = DenseSpecOf(spec);
  const GemmDesc product = DenseDescOf(desc, by_row ? 1 : desc.m, desc.n);
  if (auto no = FunctionsOf(dense).feasible(dense, product)) return no;
  if (by_row) return std::nullopt;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 1024;
  const std::int64_t columns = (desc.n - 1) / spec.tile_n + 1;
  const std::int64_t tiles = cuda::GroupedTiles(desc.m, desc.num, spec.tile_m) * columns;
  if (tiles <= kMost) return std::nullopt;
  return Rejection{Reason::kShape, Format("{} output tiles", tiles), Format("at most {}", kMost)};
}

/// As a dense product with as many tiles: of each row with a matrix of its own, or of the rows that an
/// expert has.
double EstimateGrouped(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device) {
  constexpr double kSearchUs = 1;  // for the group
  const KernelSpec dense = DenseSpecOf(spec);
  GemmDesc product;
  if (GroupsByRow(spec)) {
    product = DenseDescOf(desc, 1, double{1} * desc.n * desc.m);
    // Rows shorter than a turn take as long: 2048 x 768 in q4_k, with 128 rows, 61 us on an H200.
    if (dense.family == GemvInt8Family().name) product.k = std::max(product.k, GemvInt8Turn(dense));
  } else {
    // A part of an expert's last tile is not there, and rows spread unevenly: with 1,024 and 4,096 rows
    // of 128 experts this ranks tiles of 8 to 64 rows as an H200 does.
    constexpr double kMissing = 0.6;
    const double used = gemm::MatricesUsed(desc.m, desc.num), rows = desc.m / used;
    const double tiles = used * std::max(1.0, rows / spec.tile_m + kMissing);
    const double of_tile = std::clamp(std::round(rows), 1.0, double{1} * spec.tile_m);
    product = DenseDescOf(desc, static_cast<std::int32_t>(of_tile), desc.n * tiles);
  }
  return kSearchUs + FunctionsOf(dense).estimate_us(dense, product, device);
}

Status LaunchGrouped(const KernelSpec& spec, const GemmArgs& args, const LoadedKernel& kernel,
                     Stream stream) {
  return kernel.Launch(GroupedLaunch(spec, args, std::max(kernel.device().sm_count, 1)), stream);
}

KernelDesc GroupedDescOf(const KernelSpec& spec) {
  KernelDesc desc = DescOf(DenseSpecOf(spec));
  desc.striding_a = Bit(Striding::kBlocked) | Bit(Striding::kIndexed);
  desc.striding_b = desc.striding_c = Bit(Striding::kBlocked);
  desc.scaling = Bit(Scaling::kOneZero);
  desc.max_m = 0;
  return desc;
}

}  // namespace

Status AddCudaGemm(Registry& registry, ArtifactStore& store, CudaArch arch) {
  const CompiledFamily<GemmOp> gemv{&GemvFeasible, &EstimateGemv, &LaunchGemv};
  const CompiledFamily<GemmOp> mma{.feasible = &MmaFeasible,
                                   .estimate_us = &EstimateMma,
                                   .launch = nullptr,
                                   .workspace = &WorkspaceOfMma,
                                   .launch_within = &LaunchMma};
  const CompiledFamily<GemmOp> hopper{.feasible = &HopperFeasible,
                                      .estimate_us = &EstimateHopper,
                                      .launch = nullptr,
                                      .workspace = &WorkspaceOfHopper,
                                      .launch_within = &LaunchHopper};
  const CompiledFamily<GemmOp> gemm_q{.feasible = &GemmQFeasible,
                                      .estimate_us = &EstimateGemmQ,
                                      .launch = nullptr,
                                      .workspace = &WorkspaceOfGemmQ,
                                      .launch_within = &LaunchGemmQ};
  const CompiledFamily<GemmOp> gemm_qw{.feasible = &GemmQwFeasible,
                                       .estimate_us = &EstimateGemmQw,
                                       .launch = nullptr,
                                       .workspace = &WorkspaceOfGemmQw,
                                       .launch_within = &LaunchGemmQw};
  const CompiledFamily<GemmOp> gemm_qr{.feasible = &GemmQrFeasible,
                                       .estimate_us = &EstimateGemmQr,
                                       .launch = nullptr,
                                       .workspace = &WorkspaceOfGemmQr,
                                       .launch_within = &LaunchGemmQr};
  const std::pair<KernelFamily, CompiledFamily<GemmOp>> families[] = {
      {GemmMmaFamily(), mma},
      {GemmHopperFamily(), hopper},
      {GemmSimtFamily(), {&MmaFeasible, &EstimateSimt, &LaunchSimt}},
      {GemvBf16Family(), gemv},
      {GemvQuantisedFamily(), gemv},
      {GemvStreamFamily(), {&StreamFeasible, &EstimateStream, &LaunchStream}},
      {GemvInt8Family(), {&Int8Feasible, &EstimateInt8, &LaunchInt8}},
      {GemmQFamily(), gemm_q},
      {GemmQwFamily(), gemm_qw},
      {GemmQrFamily(), gemm_qr}};
  for (const auto& [compiled, functions] : families) {
    const auto make = [&store, &functions = functions](const KernelSpec& spec,
                                                       const ArtifactKey& request) {
      return std::make_unique<CompiledKernel<GemmOp>>(spec, request, functions, store,
                                                      DescOf(spec));
    };
    if (Status added = AddCompiled<GemmOp>(registry, store, compiled.name, arch, make); !added) {
      return added;
    }
  }
  const CompiledFamily<GemmOp> grouped{&GroupedFeasible, &EstimateGrouped, &LaunchGrouped};
  for (const KernelFamily& family : GroupedFamilies()) {
    const auto make = [&](const KernelSpec& spec, const ArtifactKey& request) {
      return std::make_unique<CompiledKernel<GemmOp>>(spec, request, grouped, store,
                                                      GroupedDescOf(spec));
    };
    if (Status added = AddCompiled<GemmOp>(registry, store, family.name, arch, make); !added)
      return added;
  }
  return {};
}

}  // namespace tilewright
