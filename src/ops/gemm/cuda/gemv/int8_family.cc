#include <algorithm>
#include <array>

#include "artifact/spec_checks.h"
#include "core/formats/formats.h"
#include "core/text.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/gemv_checks.h"
#include "ops/gemm/cuda/gemv/int8_codes.cuh"
#include "tilewright/cuda/gemv_params.h"

namespace tilewright {
namespace {

constexpr int kMaxK = 32768;
constexpr int kMaxWarps = 16, kMaxStages = 8;

/// What int8_codes.cuh makes of a format: values of a chunk, 0 where there is no Int8Codes.
struct Int8Weight {
  DataType type = DataType::kNone;
  int chunk = 0;
};
template <class Block>
constexpr Int8Weight WeightOf() {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr auto kType = static_cast<tw::Type>(kFormat.type);
  if constexpr (requires { tw::Int8Codes<kType>::kBytes; }) {
    using Codes = tw::Int8Codes<kType>;
    static_assert(Codes::kBlock == kFormat.elements && Codes::kBytes == kFormat.bytes);
    return {kFormat.type, Codes::kChunk};
  } else {
    return {kFormat.type, 0};
  }
}
template <class... Blocks>
constexpr std::array<Int8Weight, sizeof...(Blocks)> WeightsOf(BlockList<Blocks...>) {
  return {WeightOf<Blocks>()...};
}
constexpr auto kWeights = WeightsOf(AllBlocks{});

int ChunkOf(DataType type) {
  const auto* weight = std::ranges::find(kWeights, type, &Int8Weight::type);
  return weight != kWeights.end() ? weight->chunk : 0;
}
bool HasCodes(DataType type) { return ChunkOf(type) > 0; }

int RowsOf(const KernelSpec& s) { return s.params[0]; }
bool IsBulk(const KernelSpec& s) { return s.params[3] != 0; }

cuda::GemvInt8Layout LayoutOf(const KernelSpec& s) {
  const TypeInfo& weight = GetTypeInfo(s.type_b);
  const int segment_bytes = s.tile_k / weight.block_elements * weight.block_bytes;
  const int alignment = IsBulk(s) ? 16 : cuda::GemvRowAlignment(weight.block_bytes);
  return {.tile_m = s.tile_m,
          .tile_k = s.tile_k,
          .turn = 32 * ChunkOf(s.type_b),
          .row_bytes = cuda::GemvInt8RowBytes(segment_bytes, alignment),
          .rows = RowsOf(s),
          .warps = s.warps,
          .stages = s.stages,
          .norm = GemvNormalises(s),
          .bulk = IsBulk(s)};
}

std::optional<Rejection> CheckRows(const KernelSpec& s) {
  constexpr std::array kPowers = {1, 2, 4, 8};
  if (auto no = CheckOneOf("tile_m", s.tile_m, kPowers)) return no;
  if (auto no = CheckOneOf("param0", RowsOf(s), kPowers)) return no;
  if (auto no = CheckRange("param1", s.params[1], 1, 2)) return no;
  if (s.tile_m * RowsOf(s) > 32) {
    return Reject(Reason::kShape, Format("{} x {} sums in a lane", s.tile_m, RowsOf(s)),
                  "32 at most");
  }
  if (s.epilogue == SpecEpilogue::kSwiGlu && RowsOf(s) < 2) {
    return Reject(Reason::kShape, Format("param0 = {}", RowsOf(s)),
                  "a row of gate and one of up with the epilogue swiglu");
  }
  return CheckRange("tile_n", s.tile_n, RowsOf(s) * s.warps, RowsOf(s) * s.warps);
}

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckGemvTypes(s, &HasCodes, "a block format with Int8Codes in int8_codes.cuh"))
    return no;
  if (auto no = CheckRange("warps", s.warps, 1, kMaxWarps)) return no;
  if (auto no = CheckRange("stages", s.stages, 2, kMaxStages)) return no;
  if (auto no = CheckRows(s)) return no;
  const int turn = 32 * ChunkOf(s.type_b);
  const int step = s.tile_k < turn ? 1024 : turn;
  if (s.tile_k == 0 || s.tile_k % step != 0 || s.tile_k > 4096) {
    return Reject(Reason::kShape, Format("tile_k = {}", s.tile_k),
                  Format("1024 or a multiple of {}, at most 4096", turn));
  }
  if (auto no = CheckRange("param2", s.params[2], 0, 1)) return no;
  if (auto no = CheckRange("param3", s.params[3], 0, s.arch.number >= 90 ? 1 : 0)) return no;
  if (s.split_k != 0 || s.cluster_m != 0 || s.cluster_n != 0) {
    return Reject(Reason::kShape, "a field that gemv_int8 does not use is set",
                  "split_k, cluster_m, cluster_n = 0");
  }
  if (GemvInt8MaxK(s) < s.tile_k) {
    return Reject(Reason::kWorkspace,
                  Format("{} bytes of shared memory",
                         cuda::GemvInt8Smem(LayoutOf(s), s.tile_k) * s.params[1]),
                  Format("at most {} on {}", MaxSmemBytes(s.arch), s.arch.ToString()));
  }
  return std::nullopt;
}

KernelLaunchShape LaunchShape(const KernelSpec& s) {
  return {.threads = s.warps * 32u, .dynamic_smem_bytes = GemvInt8Smem(s, GemvInt8MaxK(s))};
}

ResourceLimits Limits(const KernelSpec& s) {
  const int fit = 65536 / (s.warps * 32 * s.params[1]) / 8 * 8;
  return {.max_registers = static_cast<std::uint32_t>(std::min(fit, 255))};
}

/// The shared memory of a CTA beside which an SM has no room for another. 1 KB of each is the
/// system's.
std::uint32_t LoneSmem(const KernelSpec& s) {
  return (MaxSmemBytes(s.arch) + 1024) / 2 - 1024 + 128;
}

/// Rows of W that a warp takes at a time, warps, and values of a segment of the rings.
struct Shape {
  int rows, warps, tile_k, stages, ctas;
  bool bulk = false;
  int longest = 14336;  ///< row that there is to be room for
};
/// Most of the memory's rate on an H200, of 20 that were tried: 16 warps, two rows each, and 74 to
/// 123 KB on their way.
Shape DeepShape(DataType weight) {
  if (weight == DataType::kQ8_0) return {2, 16, 2048, 3, 1};
  // Two CTAs would leave too few registers.
  if (weight == DataType::kQ5_K) return {2, 16, 2048, 4, 1};
  // Of few bytes: a fourth stage fits beside another CTA.
  if (weight == DataType::kQ2_K || weight == DataType::kQ3_K) return {2, 16, 2048, 4, 2};
  if (ChunkOf(weight) == 64) return {2, 16, 2048, 3, 2};
  return {2, 16, 2048, 4, 1};
}
/// Rings that the copy engine fills: 147 to 215 KB, one CTA an SM.
std::optional<Shape> BulkShape(DataType weight) {
  const int bytes = 2048 / GetTypeInfo(weight).block_elements * GetTypeInfo(weight).block_bytes;
  if (bytes % 16 != 0) return std::nullopt;
  const int stages = bytes > 1500 ? 3 : 4;
  return Shape{2, 16, 2048, stages, 1, true};
}
/// Where W is small: room for a CTA of the next launch, and half of the warps to start.
/// For logits of small models: more short rows on their way than in segments that they do not fill.
constexpr Shape kShortShape = {2, 16, 1024, 6, 1, false, 1024};
Shape LightShape(DataType weight) { return {weight == DataType::kQ8_0 ? 2 : 4, 8, 2048, 2, 2}; }

KernelSpec MakeSpec(CudaArch arch, DataType x, DataType weight, int tile_m, const Shape& shape,
                    bool norm) {
  // That fit beside another CTA, and alone. With the sums of squares of 4096 values q4_k would lose a
  // third of its ring.
  const int row = norm ? 2048 : 4096;  // whole segments
  KernelSpec spec;
  spec.family = "gemv_int8";
  spec.arch = arch;
  spec.type_a = spec.type_d = x;
  spec.type_b = weight;
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.tile_m = static_cast<std::uint16_t>(tile_m);
  spec.tile_k = static_cast<std::uint16_t>(shape.tile_k);
  spec.warps =
      static_cast<std::uint16_t>(MaxSmemBytes(arch) > 200 * 1024 ? shape.warps : shape.warps / 2);
  spec.params = {shape.rows, tile_m == 1 ? shape.ctas : 1, norm ? 1 : 0, shape.bulk ? 1 : 0};
  spec.tile_n = static_cast<std::uint16_t>(shape.rows * spec.warps);
  const auto fits = [&] {
    return (spec.params[1] == 1 || GemvInt8Smem(spec, row) < LoneSmem(spec)) &&
           GemvInt8MaxK(spec) >= shape.longest;
  };
  spec.stages = static_cast<std::uint8_t>(shape.stages);
  while (spec.stages > 2 && !fits()) --spec.stages;
  return spec;
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  for (const Int8Weight& weight : kWeights) {
    const std::vector<KernelSpec> own = GemvInt8Specs(weight.type, arch);
    specs.insert(specs.end(), own.begin(), own.end());
  }
  return specs;
}

}  // namespace

std::uint32_t GemvInt8Smem(const KernelSpec& spec, int k) {
  return cuda::GemvInt8Smem(LayoutOf(spec), k);
}

std::uint32_t GemvInt8LaunchSmem(const KernelSpec& spec, int n, int k, int sm_count) {
  constexpr std::size_t kSmall = 16 * 1024;  // of W for each SM
  const std::uint32_t least = GemvInt8Smem(spec, k);
  const std::size_t bytes = BytesOf(spec.type_b, k) * static_cast<std::size_t>(n);
  if (bytes <= kSmall * static_cast<std::size_t>(sm_count)) return least;
  return std::min(std::max(least, LoneSmem(spec)), LaunchShape(spec).dynamic_smem_bytes);
}

bool GemvInt8LeavesRoom(const KernelSpec& spec, int n, int k, int sm_count) {
  return spec.params[1] > 1 && GemvInt8LaunchSmem(spec, n, k, sm_count) < LoneSmem(spec);
}

int GemvInt8KGranule(const KernelSpec& spec) {
  if (IsBulk(spec)) return spec.tile_k;
  return std::max<int>(GetTypeInfo(spec.type_b).block_elements, ChunkOf(spec.type_b));
}

int GemvInt8Turn(const KernelSpec& spec) { return 32 * ChunkOf(spec.type_b); }

int GemvInt8RowAlignment(const KernelSpec& spec) {
  return IsBulk(spec) ? 16 : cuda::GemvRowAlignment(GetTypeInfo(spec.type_b).block_bytes);
}

int GemvInt8MaxK(const KernelSpec& spec) {
  const cuda::GemvInt8Layout layout = LayoutOf(spec);
  const std::uint32_t most = MaxSmemBytes(spec.arch);
  if (layout.tile_k < layout.turn) return layout.tile_k;  // rows of one segment
  int k = kMaxK / layout.tile_k * layout.tile_k;
  while (k > 0 && cuda::GemvInt8Smem(layout, k) > most) k -= layout.tile_k;
  return k;
}

KernelFamily GemvInt8Family() {
  return {.name = "gemv_int8",
          .source = "ops/gemm/cuda/gemv/gemv_int8.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchShape,
          .limits = &Limits,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

std::vector<KernelSpec> GemvInt8Specs(DataType weight, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80 || !HasCodes(weight)) return specs;
  const Shape deep = DeepShape(weight);
  const auto add = [&](DataType x, int tile_m, SpecEpilogue epilogue, DataType d,
                       bool norm = false) {
    std::vector<Shape> shapes = {deep};
    // Logits are of large matrices, beside which there is no room to keep: q6_k has a third stage.
    if (d == DataType::kF32 && x != d && weight == DataType::kQ6_K) shapes[0].ctas = 1;
    const bool one_row = tile_m == 1 && x == DataType::kBF16;
    if (one_row && deep.ctas == 1) shapes.push_back(LightShape(weight));
    if (const auto bulk = BulkShape(weight); bulk && one_row) shapes.push_back(*bulk);
    if (one_row && weight == DataType::kQ8_0 && d == DataType::kF32) shapes.push_back(kShortShape);
    for (const Shape& shape : shapes) {
      KernelSpec spec = MakeSpec(arch, x, weight, tile_m, shape, norm);
      spec.epilogue = epilogue;
      spec.type_c = epilogue == SpecEpilogue::kAdd ? d : DataType::kNone;
      spec.type_d = d;
      // Rings that an architecture has no room for.
      if (!Check(spec)) specs.push_back(spec);
    }
  };
  for (const DataType x : {DataType::kF32, DataType::kBF16}) {
    // With the epilogue add and beta = 0 the plain product.
    add(x, 1, SpecEpilogue::kAdd, x);
    add(x, 1, SpecEpilogue::kSwiGlu, x);
  }
  add(DataType::kBF16, 1, SpecEpilogue::kNone, DataType::kF32);  // logits
  for (const int tile_m : {2, 4}) {
    add(DataType::kBF16, tile_m, SpecEpilogue::kAdd, DataType::kBF16);
    add(DataType::kBF16, tile_m, SpecEpilogue::kNone, DataType::kF32);
  }
  for (const int tile_m : {1, 2, 4}) {
    add(DataType::kBF16, tile_m, SpecEpilogue::kNone, DataType::kBF16, true);
    // With four rows logits take up to 1.04 of the time of gemv_q, which is more than a norm.
    if (tile_m < 4) add(DataType::kBF16, tile_m, SpecEpilogue::kNone, DataType::kF32, true);
  }
  add(DataType::kBF16, 1, SpecEpilogue::kSwiGlu, DataType::kBF16, true);
  return specs;
}

}  // namespace tilewright
