#include "ops/gemm/cuda/gemv/families.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "artifact/spec_checks.h"
#include "core/formats/formats.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemv/gemv_checks.h"
#include "ops/gemm/cuda/gemv/gemv_codes.cuh"
#include "ops/gemm/cuda/gemv/segment.h"
#include "tilewright/cuda/gemv_params.h"

namespace tilewright {
namespace {

constexpr int kMaxTileM = 8, kMaxWarps = 16, kMaxCtas = 16;
constexpr int kRegistersOfSm = 65536;
constexpr int kGatedRows = cuda::kGemvGatedBlock;

bool IsPlain(DataType type) {
  return type == DataType::kBF16 || type == DataType::kF16 || type == DataType::kF32;
}

/// What gemv_codes.cuh makes of a format.
struct BlockWeight {
  DataType type = DataType::kNone;
  bool served = false;  ///< there is a Codes<type>
  int scales = 0;       ///< of a sub-block of 32 values
  bool has_offset = false;
  bool of_block_codes = false;
};
template <class Block>
constexpr BlockWeight WeightOf() {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr auto kType = static_cast<tw::Type>(kFormat.type);
  if constexpr (requires { tw::Codes<kType>::kBytes; }) {
    using Codes = tw::Codes<kType>;
    static_assert(Codes::kBlock == kFormat.elements && Codes::kBytes == kFormat.bytes);
    static_assert(Codes::kScales == (kFormat.sub_block < 32 ? 32 / kFormat.sub_block : 1));
    static_assert(Codes::kHasOffset || kFormat.min == Factor::kNone);
    return {kFormat.type, true, Codes::kScales, Codes::kHasOffset, tw::kHasBlockCodes<kType>};
  } else {
    return {kFormat.type};
  }
}
template <class... Blocks>
constexpr std::array<BlockWeight, sizeof...(Blocks)> WeightsOf(BlockList<Blocks...>) {
  return {WeightOf<Blocks>()...};
}
constexpr auto kBlockWeights = WeightsOf(AllBlocks{});

const BlockWeight* FindBlock(DataType type) {
  const auto* weight = std::ranges::find(kBlockWeights, type, &BlockWeight::type);
  return weight != kBlockWeights.end() && weight->served ? weight : nullptr;
}
bool IsBlock(DataType type) { return FindBlock(type) != nullptr; }

int SplitOf(const KernelSpec& spec) { return spec.params[0]; }
int CtasOf(const KernelSpec& spec) { return spec.params[1]; }

/// What both families ask of the fields of the tile.
std::optional<Rejection> CheckTile(const KernelSpec& s) {
  if (auto no = CheckRange("tile_m", s.tile_m, 1, kMaxTileM)) return no;
  if (auto no = CheckRange("warps", s.warps, 1, kMaxWarps)) return no;
  if (auto no = CheckRange("param1", CtasOf(s), 1, kMaxCtas)) return no;
  if (SplitOf(s) < 1 || s.warps % SplitOf(s) != 0) {
    return Reject(Reason::kShape, Format("param0 = {}, warps = {}", SplitOf(s), s.warps),
                  "param0 a divisor of warps");
  }
  if (s.tile_k != 0 || s.split_k != 0 || s.cluster_m != 0 || s.cluster_n != 0 || s.params[2] != 0 ||
      s.params[3] != 0) {
    return Reject(Reason::kShape, "a field that gemv does not use is set",
                  "tile_k, split_k, cluster_m, cluster_n, param2, param3 = 0");
  }
  if (s.warps * 32 * CtasOf(s) > 2048) {
    return Reject(Reason::kShape, Format("{} CTAs of {} warps", CtasOf(s), s.warps),
                  "at most 64 warps on an SM");
  }
  return std::nullopt;
}

std::optional<Rejection> CheckPlain(const KernelSpec& s) {
  if (auto no = CheckGemvTypes(s, &IsPlain, "bf16, f16 or f32")) return no;
  if (s.epilogue == SpecEpilogue::kSwiGlu)
    return Reject(Reason::kEpilogue, std::string(SpecEpilogueName(s.epilogue)), "none or add");
  if (auto no = CheckTile(s)) return no;
  if (auto no = CheckRange("stages", s.stages, 1, 8)) return no;
  const int groups = s.warps / SplitOf(s);
  if (s.tile_n == 0 || s.tile_n % groups != 0 || s.tile_n / groups > 8) {
    return Reject(Reason::kShape, Format("tile_n = {}, {} groups of warps", s.tile_n, groups),
                  "1 to 8 rows for each group");
  }
  if (s.tile_m * (s.tile_n / groups) > 32) {
    return Reject(Reason::kShape, Format("{} x {} sums in a lane", s.tile_m, s.tile_n / groups),
                  "32 at most");
  }
  return std::nullopt;
}

/// The rings of all groups of warps.
std::uint32_t RingBytes(const KernelSpec& s) {
  const TypeInfo& weight = GetTypeInfo(s.type_b);
  return static_cast<std::uint32_t>(
      s.stages * s.tile_n *
      tw::GemvSegmentBytes(SplitOf(s), weight.block_bytes, weight.block_elements));
}

std::optional<Rejection> CheckBlocks(const KernelSpec& s) {
  if (auto no = CheckGemvTypes(s, &IsBlock, "a block format with Codes in gemv_codes.cuh"))
    return no;
  if (auto no = CheckTile(s)) return no;
  if (auto no = CheckRange("stages", s.stages, 2, 8)) return no;
  const int groups = s.warps / SplitOf(s);
  if (s.tile_n != 16 * groups && s.tile_n != 32 * groups) {
    return Reject(Reason::kShape, Format("tile_n = {}, {} groups of warps", s.tile_n, groups),
                  "16 or 32 rows for each group");
  }
  const int rows = s.tile_n / groups;
  if (rows % SplitOf(s) != 0 || rows / SplitOf(s) > 4) {
    return Reject(Reason::kShape, Format("param0 = {}, {} rows for each group", SplitOf(s), rows),
                  "1 to 4 rows that each warp copies");
  }
  if (s.epilogue == SpecEpilogue::kSwiGlu && s.tile_n % (2 * kGatedRows) != 0) {
    return Reject(Reason::kShape, Format("tile_n = {}", s.tile_n),
                  Format("whole pairs of {} rows with the epilogue swiglu", kGatedRows));
  }
  // The sums of the warps are static, beside the rings.
  const std::uint32_t smem = RingBytes(s) + s.tile_m * s.tile_n * SplitOf(s) * 4u;
  if (smem > MaxSmemBytes(s.arch)) {
    return Reject(Reason::kWorkspace, Format("{} bytes of shared memory", smem),
                  Format("at most {} on {}", MaxSmemBytes(s.arch), s.arch.ToString()));
  }
  return std::nullopt;
}

KernelLaunchShape LaunchPlain(const KernelSpec& spec) {
  return {.threads = spec.warps * 32u, .dynamic_smem_bytes = 0};
}
KernelLaunchShape LaunchBlocks(const KernelSpec& spec) {
  return {.threads = spec.warps * 32u, .dynamic_smem_bytes = RingBytes(spec)};
}

ResourceLimits Limits(const KernelSpec& spec) {
  // What lets param1 CTAs live on an SM; registers come in units of eight a thread.
  const int fit = kRegistersOfSm / (spec.warps * 32 * CtasOf(spec)) / 8 * 8;
  return {.max_registers = static_cast<std::uint32_t>(std::min(fit, 255))};
}

/// A kernel for plain weights: how many rows of W a warp reads at once, how many spans deep, and
/// how many CTAs an SM shall hold (which bounds the registers; no row spills). At one row of x, 32
/// warps of 2 x 4 loads of 16 bytes keep 128 KB in flight on an SM; 26 KB hide the latency of an
/// H200's memory at its full rate. More rows of W for a load of x pay where x has several rows.
///
/// A kernel for blocks: strips of 16 rows of W that a warp takes, and stages of its ring. Stages
/// and warps together keep the bytes in flight; warps that share a row find work where W has few.
/// On an H200 eight warps won at 4096 x 4096 and 4096 x 14336, four often at 14336 x 4096, 32 rows
/// for eight rows of x at 14336 x 4096; one warp a strip (no split) and 16 never did.
struct Shape {
  int tile_m, rows, warps, split, stages, ctas;
};
constexpr std::array kPlainShapes = {Shape{1, 2, 4, 4, 4, 8}, Shape{2, 4, 4, 4, 2, 5},
                                     Shape{4, 4, 4, 4, 1, 4}, Shape{8, 4, 4, 4, 1, 3}};
constexpr std::array kBlockShapes = {
    Shape{1, 16, 4, 4, 3, 4}, Shape{1, 16, 8, 8, 2, 3}, Shape{1, 16, 8, 8, 3, 3},
    Shape{1, 32, 8, 8, 2, 2}, Shape{2, 16, 4, 4, 3, 4}, Shape{2, 16, 8, 8, 2, 3},
    Shape{4, 16, 4, 4, 3, 4}, Shape{4, 16, 8, 8, 2, 3}, Shape{8, 16, 4, 4, 3, 4},
    Shape{8, 16, 8, 8, 2, 3}, Shape{8, 32, 8, 8, 2, 1}};
/// For formats of block_codes.cuh, each number of rows once: a few rows are gemv_int8's, and these are
/// for those that must not be rounded.
constexpr std::array kCodesShapes = {Shape{1, 16, 8, 8, 2, 3}, Shape{2, 16, 8, 8, 2, 3},
                                     Shape{4, 16, 8, 8, 2, 3}, Shape{8, 16, 8, 8, 2, 3}};
/// For the projections that end a residual block, y = x W^T + c, and for logits of f32 that
/// activations of bf16 give: one row and a few.
constexpr std::array kPlainFew = {Shape{1, 2, 4, 4, 4, 8}, Shape{8, 4, 4, 4, 1, 3}};
/// Of f32, the routers of sparse models and small models: one row and a few.
constexpr std::array kWideFew = {Shape{1, 2, 4, 4, 4, 6}, Shape{8, 4, 4, 4, 1, 3}};
constexpr std::array kBlockFew = {Shape{1, 16, 8, 8, 2, 3}, Shape{8, 16, 8, 8, 2, 3}};
/// Logits of small models are many rows of two or three spans.
constexpr std::array kBlockLogits = {Shape{1, 16, 8, 8, 2, 3}, Shape{1, 16, 4, 4, 3, 4},
                                     Shape{8, 16, 8, 8, 2, 3}};
/// For gate and up of one row: 16 rows of each in a CTA.
constexpr std::array kBlockGated = {Shape{1, 16, 8, 4, 3, 2}};

/// Blocks whose kernels hold more: three parts of an x in f32, two scales of 32 values.
bool IsWide(DataType x, DataType weight) {
  const BlockWeight* block = FindBlock(weight);
  return block != nullptr && (x == DataType::kF32 || block->scales > 1);
}

KernelSpec MakeSpec(DataType x, DataType weight, CudaArch arch, const Shape& shape) {
  KernelSpec spec;
  spec.family = IsPlain(weight) ? FamilyName("gemv_bf16") : FamilyName("gemv_q");
  spec.arch = arch;
  spec.type_a = x;
  spec.type_b = weight;
  spec.type_d = x;
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.stages = static_cast<std::uint8_t>(shape.stages);
  spec.tile_m = static_cast<std::uint16_t>(shape.tile_m);
  spec.tile_n = static_cast<std::uint16_t>(shape.rows * shape.warps / shape.split);
  spec.warps = static_cast<std::uint16_t>(shape.warps);
  // Registers that would let one more CTA live go to the fragments.
  const bool wide = IsWide(x, weight);
  spec.params = {shape.split, wide ? std::max(shape.ctas - 1, 1) : shape.ctas, 0, 0};
  return spec;
}

std::vector<KernelSpec> Catalog(CudaArch arch, const std::vector<DataType>& weights) {
  std::vector<KernelSpec> specs;
  for (const DataType weight : weights) {
    const std::vector<KernelSpec> own = GemvSpecsForWeight(weight, arch);
    specs.insert(specs.end(), own.begin(), own.end());
  }
  return specs;
}
std::vector<KernelSpec> PlainCatalog(CudaArch arch) {
  std::vector<KernelSpec> specs = Catalog(arch, {DataType::kBF16, DataType::kF16, DataType::kF32});
  std::erase_if(specs, [](const KernelSpec& s) { return s.family != FamilyName("gemv_bf16"); });
  return specs;
}
std::vector<KernelSpec> BlockCatalog(CudaArch arch) {
  std::vector<DataType> weights;
  for (const BlockWeight& weight : kBlockWeights) {
    if (weight.served) weights.push_back(weight.type);
  }
  return Catalog(arch, weights);
}

}  // namespace

KernelFamily GemvBf16Family() {
  return {.name = "gemv_bf16",
          .launch_abi = 2,
          .source = "ops/gemm/cuda/gemv/gemv_bf16.cu",
          .files = {},
          .options = {},
          .check = &CheckPlain,
          .launch = &LaunchPlain,
          .limits = &Limits,
          .catalog = &PlainCatalog,
          .waits_for_prerequisites = true};
}

KernelFamily GemvQuantisedFamily() {
  return {.name = "gemv_q",
          .launch_abi = 2,
          .source = "ops/gemm/cuda/gemv/gemv_q.cu",
          .files = {},
          .options = {},
          .check = &CheckBlocks,
          .launch = &LaunchBlocks,
          .limits = &Limits,
          .catalog = &BlockCatalog,
          .waits_for_prerequisites = true};
}

bool HasGemvCodes(DataType type) { return IsBlock(type); }
bool GemvCodesHaveOffset(DataType type) {
  const BlockWeight* block = FindBlock(type);
  return block != nullptr && block->has_offset;
}

Status AddGemvFamilies(KernelFamilies& families) {
  for (const KernelFamily& family :
       {GemvBf16Family(), GemvQuantisedFamily(), GemvStreamFamily(), GemvInt8Family()}) {
    if (Status added = families.Add(family); !added) return added;
  }
  return {};
}

std::vector<KernelSpec> GemvSpecsForWeight(DataType weight, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80 || (!IsPlain(weight) && !IsBlock(weight))) return specs;
  const bool plain = IsPlain(weight);
  using Shapes = std::span<const Shape>;
  const bool few = !plain && FindBlock(weight)->of_block_codes;
  const bool wide = weight == DataType::kF32;
  const Shapes plain_few = wide ? Shapes(kWideFew) : Shapes(kPlainFew);
  const Shapes shapes = wide    ? plain_few
                        : plain ? Shapes(kPlainShapes)
                        : few   ? Shapes(kCodesShapes)
                                : Shapes(kBlockShapes);
  const Shapes logits_shapes = plain ? plain_few : few ? Shapes(kBlockFew) : Shapes(kBlockLogits);
  for (const DataType x : {DataType::kF32, DataType::kBF16}) {
    for (const Shape& shape : shapes) {
      // Wins a few per cent at most there, and takes twice as long to compile as the others.
      if (shape.tile_m == 8 && shape.rows == 32 && IsWide(x, weight)) continue;
      specs.push_back(MakeSpec(x, weight, arch, shape));
    }
    for (const Shape& shape : plain ? kPlainFew : kBlockFew) {
      if (wide) break;
      KernelSpec add = MakeSpec(x, weight, arch, shape);
      add.epilogue = SpecEpilogue::kAdd;
      add.type_c = x;
      specs.push_back(add);
    }
    if (!plain) {
      for (const Shape& shape : kBlockGated) {
        KernelSpec gated = MakeSpec(x, weight, arch, shape);
        gated.epilogue = SpecEpilogue::kSwiGlu;
        specs.push_back(gated);
      }
    }
    if (x == DataType::kF32) continue;
    for (const Shape& shape : logits_shapes) {
      KernelSpec logits = MakeSpec(x, weight, arch, shape);
      logits.type_d = DataType::kF32;
      specs.push_back(logits);
    }
  }
  if (plain) {
    const std::vector<KernelSpec> streams = GemvStreamSpecs(weight, arch);
    specs.insert(specs.end(), streams.begin(), streams.end());
  }
  // Rings that an architecture has no room for.
  if (!plain) std::erase_if(specs, [](const KernelSpec& s) { return CheckBlocks(s).has_value(); });
  return specs;
}

}  // namespace tilewright
