#include "ops/gemm/cpu/onednn/onednn_panels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

#include "core/block_format.h"
#include "core/parallel.h"
#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/common.h"
#include "ops/gemm/cpu/onednn/library.h"
#include "ops/gemm/cpu/onednn/rows.h"
#include "ops/gemm/cpu/w8a8/layout.h"
#include "ops/gemm/cpu/w8a8/pack.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm {
namespace {

constexpr int kStripColumns = 64;
/// Staged rows of activations, in bytes.
constexpr std::size_t kStageBytes = 32 << 20;
constexpr int kMostPieceRows = 256;  ///< of a piece, unless the configuration says otherwise
constexpr int kWantedPieces = 64;
constexpr int kStagedAtOnce = 8;  ///< rows of activations of a task

/// Words of the launch configuration, behind the number of threads.
enum Word : std::size_t { kRowsWord = 1, kColumnsWord = 2 };
constexpr ConfigField kFields[] = {
    kThreadsField[0],
    {.name = "rows", .least = 16, .most = 1 << 16, .optional = true},  ///< of a piece
    {.name = "cols", .least = kStripColumns, .most = 1 << 20, .optional = true},
};

/// What one precision is to oneDNN.
struct Kind {
  Pack pack = kPackPlain;
  std::string_view flag;
  int element = 4;  ///< bytes of both operands
  int group = 1;    ///< members of k side by side
  dnnl::memory::data_type a{}, b{}, sums{};
  /// The layout by blocks of 16 groups of k, and by the shorter ones that oneDNN asks for without AMX:
  /// of the same bytes, since k is filled up for the longer.
  std::array<dnnl::memory::format_tag, 2> tags{};

  int padded(int k) const { return CeilDiv(k, 16 * group) * 16 * group; }
};

const Kind& KindOf(Precision activations) {
  using Type = dnnl::memory::data_type;
  using Tag = dnnl::memory::format_tag;
  static const Kind kF32 = {.pack = kPackF32x64,
                            .flag = "",
                            .element = 4,
                            .group = 1,
                            .a = Type::f32,
                            .b = Type::f32,
                            .sums = Type::f32,
                            .tags = {Tag::OI16i64o, Tag::OI16i64o}};
  static const Kind kBF16 = {.pack = kPackBF16x64x2,
                             .flag = "abf16",
                             .element = 2,
                             .group = 2,
                             .a = Type::bf16,
                             .b = Type::bf16,
                             .sums = Type::f32,
                             .tags = {Tag::OI16i64o2i, Tag::OI8i64o2i}};
  static const Kind kW8A8 = {.pack = kPackI8x64x4,
                             .flag = "w8a8",
                             .element = 1,
                             .group = 4,
                             .a = Type::u8,
                             .b = Type::s8,
                             .sums = Type::s32,
                             .tags = {Tag::OI16i64o4i, Tag::OI4i64o4i}};
  return activations == Precision::kF32 ? kF32 : activations == Precision::kBF16 ? kBF16 : kW8A8;
}

KernelInfo InfoOf(DataType type_b, Precision activations) {
  const Kind& kind = KindOf(activations);
  KernelInfo info;
  info.name = FormatKernelId({.a = "f32",
                              .b = DataTypeName(type_b),
                              .c = "f32",
                              .isa = "onednn",
                              .tile = "1x64",
                              .pack = PackName(kind.pack),
                              .flag = kind.flag});
  info.fingerprint = OneDnnFingerprint() + "+" +
                     JoinFingerprints({OneDnnRowsAvx512().tu, gemm_w8a8::OpsScalar().tu});
  info.provider = Provider::kVendor;
  info.features = FeaturesOfThisMachine() | kFeatureAvx512;
  if (activations == Precision::kBF16) info.features |= kFeatureAvx512Bf16;
  if (activations == Precision::kW8A8) info.features |= kFeatureAvx512Vnni;
  return info;
}

KernelDesc DescOf(DataType type_b, Precision activations) {
  KernelDesc desc;
  desc.type_a = desc.type_c = Bit(DataType::kF32);
  desc.type_b = Bit(type_b);
  desc.epilogue = Bit(Epilogue::kNone) | Bit(Epilogue::kGatedSilu);
  desc.pack_b = KindOf(activations).pack;
  desc.activations = activations;
  desc.align_k = BlockElements(type_b);
  desc.tile_n = kStripColumns;
  return desc;
}

/// Scratch of oneDNN's own for the calling thread. It grows and is kept: oneDNN says how much it needs
/// only when a primitive has been made, which is after workspaces have been reserved.
void* ThreadScratch(std::size_t bytes) {
  thread_local std::vector<std::max_align_t> scratch;
  constexpr std::size_t kUnit = sizeof(std::max_align_t);
  const std::size_t units = (bytes + kAlignment + kUnit - 1) / kUnit;
  if (scratch.size() < units) scratch.resize(units);
  return reinterpret_cast<void*>(AlignUp(reinterpret_cast<std::size_t>(scratch.data())));
}

}  // namespace

/// How a launch is cut.
struct OneDnnPanels::Cut {
  int rows = 0, strips = 0;  ///< of D
  int padded_k = 0;
  int piece_rows = 0, piece_strips = 0;
  int stage_rows = 0;  ///< rows staged at a time, whole pieces
  std::size_t row_bytes = 0, strip_bytes = 0;

  auto operator<=>(const Cut&) const = default;
  int runs() const { return CeilDiv(strips, piece_strips); }
  int pieces() const { return CeilDiv(rows, piece_rows) * runs(); }
  std::size_t staged_bytes() const {
    return AlignUp(static_cast<std::size_t>(std::min(stage_rows, rows)) * row_bytes);
  }
  std::size_t scales_bytes() const {
    return AlignUp(static_cast<std::size_t>(std::min(stage_rows, rows)) * sizeof(float));
  }
  std::size_t sums_bytes() const {  // one worker's
    return static_cast<std::size_t>(piece_rows) * static_cast<std::size_t>(piece_strips) *
           kStripColumns * 4;
  }
  std::size_t TotalBytes(int workers) const {
    return staged_bytes() + scales_bytes() + sums_bytes() * static_cast<std::size_t>(workers);
  }
};

OneDnnPanels::Cut OneDnnPanels::MakeCut(const GemmShape& shape, const LaunchConfig& config) const {
  const Kind& kind = KindOf(activations_);
  Cut cut;
  cut.rows = shape.m;
  cut.strips = CeilDiv(shape.n, kStripColumns);
  cut.padded_k = kind.padded(shape.k);
  cut.row_bytes = static_cast<std::size_t>(cut.padded_k) * static_cast<std::size_t>(kind.element);
  cut.strip_bytes = cut.row_bytes * kStripColumns;
  const auto word = [&](Word at) { return static_cast<int>(config.words[at]); };
  const int most_rows = word(kRowsWord) > 0 ? word(kRowsWord) : kMostPieceRows;
  cut.piece_rows = CeilDiv(shape.m, CeilDiv(shape.m, most_rows));
  const int blocks = CeilDiv(shape.m, cut.piece_rows);
  cut.piece_strips = word(kColumnsWord) > 0
                         ? std::min(cut.strips, CeilDiv(word(kColumnsWord), kStripColumns))
                         : std::min(cut.strips, CeilDiv(cut.strips * blocks, kWantedPieces));
  const auto stage =
      static_cast<int>(kStageBytes / (cut.row_bytes * static_cast<std::size_t>(cut.piece_rows)));
  cut.stage_rows = std::max(1, stage) * cut.piece_rows;
  return cut;
}

/// The primitives of a cut: of whole pieces and of those at the ends of rows and columns.
class OneDnnPanels::Products {
 public:
  static Result<Products> Make(const Kind& kind, const Cut& cut, std::string_view kernel) {
    const OneOpenMpThread alone;
    Products made;
    try {
      const int row_tail = cut.rows % cut.piece_rows, strip_tail = cut.strips % cut.piece_strips;
      for (const bool last_rows : {false, true}) {
        for (const bool last_strips : {false, true}) {
          const int rows = last_rows ? row_tail : cut.piece_rows;
          const int strips = last_strips ? strip_tail : cut.piece_strips;
          if (rows == 0 || strips == 0) continue;
          if (!made.at(last_rows, last_strips).MakeFor(kind, rows, cut.padded_k, strips)) {
            return Fail(ErrorCode::kUnsupported,
                        fmt::format("{}: oneDNN has only its reference code for {} x {} x {}",
                                    kernel, rows, strips * kStripColumns, cut.padded_k));
          }
        }
      }
    } catch (const dnnl::error& error) {
      return Fail(ErrorCode::kInternal, fmt::format("{}: oneDNN: {}", kernel, error.message));
    }
    return made;
  }

  /// sums[rows][strips * 64] of a piece; false if oneDNN refused.
  bool Run(bool last_rows, bool last_strips, const void* a, const void* b, void* sums) const {
    const OneOpenMpThread alone;
    const Product& product = products_[Index(last_rows, last_strips)];
    try {
      const auto view = [&](const dnnl::memory::desc& desc, const void* data) {
        return dnnl::memory(desc, product.engine, const_cast<void*>(data));
      };
      dnnl::stream stream(product.engine);
      product.primitive.execute(
          stream, {{DNNL_ARG_SRC, view(product.a, a)},
                   {DNNL_ARG_WEIGHTS, view(product.b, b)},
                   {DNNL_ARG_DST, view(product.sums, sums)},
                   {DNNL_ARG_SCRATCHPAD,
                    view(product.scratch, ThreadScratch(product.scratch.get_size()))}});
      stream.wait();
    } catch (const dnnl::error&) {
      return false;
    }
    return true;
  }

 private:
  struct Product {
    dnnl::engine engine;
    dnnl::memory::desc a, b, sums, scratch;
    dnnl::inner_product_forward primitive;

    /// False if oneDNN has no fast code for any of the layouts.
    bool MakeFor(const Kind& kind, int rows, int k, int strips) {
      using Forward = dnnl::inner_product_forward;
      engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
      const int columns = strips * kStripColumns;
      a = dnnl::memory::desc({rows, k}, kind.a, dnnl::memory::format_tag::nc);
      sums = dnnl::memory::desc({rows, columns}, kind.sums, dnnl::memory::format_tag::nc);
      dnnl::primitive_attr attributes;
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      for (const auto tag : kind.tags) {
        b = dnnl::memory::desc({columns, k}, kind.b, tag);
#if DNNL_VERSION_MAJOR >= 3
        const Forward::primitive_desc chosen(engine, dnnl::prop_kind::forward_inference, a, b, sums,
                                             attributes);
#else
        const Forward::primitive_desc chosen(
            Forward::desc(dnnl::prop_kind::forward_inference, a, b, sums), attributes, engine);
#endif
        if (std::string_view(chosen.impl_info_str()).starts_with("ref")) continue;
        scratch = chosen.scratchpad_desc();
        primitive = Forward(chosen);
        return true;
      }
      return false;
    }
  };
  static std::size_t Index(bool last_rows, bool last_strips) {
    return (last_rows ? 2u : 0u) + (last_strips ? 1u : 0u);
  }
  Product& at(bool last_rows, bool last_strips) { return products_[Index(last_rows, last_strips)]; }

  std::array<Product, 4> products_;
};

class OneDnnPanels::Bound final : public BoundLaunch<GemmOp> {
 public:
  Bound(const OneDnnPanels& kernel, const LaunchSpec& spec, Products products)
      : kernel_(kernel), spec_(spec), products_(std::move(products)) {}
  Status Launch(const GemmArgs& args, Workspace& workspace, Stream stream) const override {
    return LaunchOnThreads(spec_.config, stream, [&](Stream limited) {
      return kernel_.Execute(args, spec_, products_, workspace, limited);
    });
  }

 private:
  const OneDnnPanels& kernel_;
  LaunchSpec spec_;
  Products products_;
};

OneDnnPanels::OneDnnPanels(DataType type_b, Precision activations)
    : CpuKernel(InfoOf(type_b, activations), DescOf(type_b, activations)),
      type_b_(type_b),
      activations_(activations) {}

std::span<const ConfigField> OneDnnPanels::ConfigFields() const { return kFields; }

std::optional<Rejection> OneDnnPanels::IsFeasible(const GemmDesc& problem) const {
  if (auto no = Kernel::IsFeasible(problem)) return no;
  if (activations_ == Precision::kW8A8) {
    if (auto no = gemm_w8a8::CheckDepth(problem.k)) return no;
  }
  return CheckDense(problem);
}

std::vector<LaunchSpec> OneDnnPanels::Specs(const GemmDesc& problem, const DeviceSpec& device,
                                            const LaunchLimits& limits) const {
  std::vector<LaunchSpec> specs = CpuKernel::Specs(problem, device, limits);
  const GemmShape shape{problem.m, problem.n, problem.k, problem.num};
  std::vector<Cut> cuts = {MakeCut(shape, {})};
  for (const int rows : {0, 64, 1024}) {
    for (const int columns : {0, 64, 256, 1024}) {
      LaunchSpec spec = specs.front();
      spec.config.words[kRowsWord] = rows;
      spec.config.words[kColumnsWord] = columns;
      const Cut cut = MakeCut(shape, spec.config);
      if (std::find(cuts.begin(), cuts.end(), cut) != cuts.end()) continue;
      cuts.push_back(cut);
      specs.push_back(spec);
    }
  }
  return specs;
}

std::size_t OneDnnPanels::PartialsBytes(const GemmDesc& p, const LaunchSpec& spec,
                                        const DeviceSpec& device) const {
  return MakeCut({p.m, p.n, p.k, p.num}, spec.config)
      .TotalBytes(WorkersOf(spec.config, device.cores));
}

double OneDnnPanels::EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                                const DeviceSpec& device) const {
  const Cut cut = MakeCut({p.m, p.n, p.k, p.num}, spec.config);
  const double workers = std::min(WorkersOf(spec.config, device.cores), cut.pieces());
  // A little below what is assumed of our own kernels: what is about as good, and has not been measured, is
  // not the first guess. Whole products reach 0.85 of the rate of vectors on a Zen 4.
  constexpr double kVectorShare = 0.75, kInt8VectorShare = 0.38, kTileShare = 0.25;
  const bool i8 = activations_ == Precision::kW8A8, bf16 = activations_ == Precision::kBF16;
  const double tiles = i8 ? device.amx_i8_gop_s : bf16 ? device.amx_bf16_gflop_s : 0;
  const double vectors = i8 ? device.i8_gop_s : bf16 ? device.bf16_gflop_s : device.f32_gflop_s;
  const double rate =
      tiles > 0 ? kTileShare * tiles : (i8 ? kInt8VectorShare : kVectorShare) * vectors;
  const double rows = tiles > 0 ? CeilDiv(p.m, 16) * 16 : p.m;
  const double compute_us =
      2e-3 * rows * cut.strips * kStripColumns * cut.padded_k / (rate * workers);
  const double bytes = static_cast<double>(cut.strips) * static_cast<double>(cut.strip_bytes);
  // On tiles a core waits for its weights. (8 rows of bf16 on 16 threads of a shared Xeon, weights from memory: 220 to
  // 330 ns a KB and core for nine shapes.)
  constexpr double kCoreGBs = 10;
  const double read_gb_s =
      tiles > 0 ? std::min(ReadRate(device, bytes), kCoreGBs * workers) : ReadRate(device, bytes);
  // By vectors from memory: f32 on two cores of a Zen 5, us, by oneDNN and by our own panels, 2048 x 2048, 3072 x 2048, 2048 x 8192
  // and 16384 x 2048: 4 rows 341 and 342, 615 and 543, 1,350 and 1,392, 2,769 and 2,634; 8 rows 408 and 363, 754 and 536, 1,625 and
  // 1,458, 3,280 and 2,923; 12 rows 430 and 373, 828 and 564, 1,676 and 1,547, 3,412 and 3,134.
  constexpr double kByVectors = 1.05;
  const double memory_us = (tiles > 0 ? 1 : kByVectors) * bytes / read_gb_s * 1e-3;
  const double beside_us = (1e-4 * p.m * p.k + 2e-4 * p.m * p.n) / workers;
  constexpr double kCallUs = 1.0, kRegionUs = 1.0;
  return std::max(compute_us, memory_us) + beside_us + kCallUs * cut.pieces() / workers +
         2 * kRegionUs;
}

std::size_t OneDnnPanels::PackedBytes(const MatrixLayout& b) const {
  const Cut cut = MakeCut({1, b.cols, b.rows, 1}, {});
  const auto strips = static_cast<std::size_t>(cut.strips);
  const std::size_t ends =
      activations_ == Precision::kW8A8 ? kStripColumns * (sizeof(float) + sizeof(std::int32_t)) : 0;
  return strips * (cut.strip_bytes + ends);
}

Status OneDnnPanels::PackB(const void* plain, const MatrixLayout& b, void* packed,
                           Stream stream) const {
  if (Status ok = gemm_w8a8::CheckPlainWeights(name(), type_b_, b); !ok) return ok;
  const Kind& kind = KindOf(activations_);
  const Cut cut = MakeCut({1, b.cols, b.rows, 1}, {});
  const auto strips = static_cast<std::size_t>(cut.strips);
  auto* const codes = static_cast<std::byte*>(packed);
  if (activations_ != Precision::kW8A8) {
    const auto element = static_cast<std::size_t>(kind.element);
    stream.exec().Run(cut.strips, [&](int strip, int) {
      std::byte* const to = codes + static_cast<std::size_t>(strip) * cut.strip_bytes;
      std::memset(to, 0, cut.strip_bytes);
      const int first = strip * kStripColumns, count = std::min(kStripColumns, b.cols - first);
      for (int c = 0; c < count; ++c) {
        const auto* from = static_cast<const std::byte*>(plain) +
                           static_cast<std::size_t>((first + c) * b.ld) * element;
        for (int k = 0; k < b.rows; ++k) {
          const int at = (k / kind.group * kStripColumns + c) * kind.group + k % kind.group;
          std::memcpy(to + static_cast<std::size_t>(at) * element,
                      from + static_cast<std::size_t>(k) * element, element);
        }
      }
    });
    return {};
  }
  // From the panels of gemm_w8a8, four of which lie side by side in a strip.
  auto* const scales = reinterpret_cast<float*>(codes + strips * cut.strip_bytes);
  auto* const sums = reinterpret_cast<std::int32_t*>(scales + strips * kStripColumns);
  constexpr int kPanels = kStripColumns / gemm_w8a8::kColumns;
  constexpr std::size_t kLine = gemm_w8a8::kColumns * 4;
  stream.exec().Run(cut.strips * kPanels, [&](int panel, int) {
    std::vector<std::uint8_t> bytes(gemm_w8a8::PanelBytes(b.rows));
    if (panel * gemm_w8a8::kColumns < b.cols)
      gemm_w8a8::PackPanelOf(type_b_, plain, b, panel, bytes.data());
    std::byte* const strip = codes + static_cast<std::size_t>(panel / kPanels) * cut.strip_bytes;
    const auto side = static_cast<std::size_t>(panel % kPanels);
    const auto lines = static_cast<std::size_t>(cut.padded_k / 4);
    for (std::size_t line = 0; line < lines; ++line)
      std::memcpy(strip + (line * kPanels + side) * kLine, bytes.data() + line * kLine, kLine);
    const std::uint8_t* const end = bytes.data() + lines * kLine;
    const auto column = static_cast<std::size_t>(panel * gemm_w8a8::kColumns);
    std::memcpy(scales + column, end, kLine);
    std::memcpy(sums + column, end + kLine, kLine);
  });
  return {};
}

Result<std::shared_ptr<const BoundLaunch<GemmOp>>> OneDnnPanels::BindLaunch(const GemmDesc& p,
                                                                            const LaunchSpec& spec,
                                                                            Device&) const {
  Result<Products> products =
      Products::Make(KindOf(activations_), MakeCut({p.m, p.n, p.k, p.num}, spec.config), name());
  if (!products) return Fail(products.error());
  return std::shared_ptr<const BoundLaunch<GemmOp>>(
      std::make_shared<Bound>(*this, spec, *std::move(products)));
}

Status OneDnnPanels::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                              Stream stream) {
  Result<Products> products =
      Products::Make(KindOf(activations_), MakeCut(ShapeOf(args), spec.config), name());
  if (!products) return Fail(products.error());
  return Execute(args, spec, *products, workspace, stream);
}

Status OneDnnPanels::Execute(const GemmArgs& args, const LaunchSpec& spec, const Products& products,
                             Workspace& workspace, Stream stream) const {
  const GemmShape shape = ShapeOf(args);
  const Kind& kind = KindOf(activations_);
  const Cut cut = MakeCut(shape, spec.config);
  if (Status ok = CheckLaunch(*this, spec, shape, workspace, cut.TotalBytes(Workers(stream))); !ok)
    return ok;
  if (args.b_layout.pack != kind.pack) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: B is packed as {}, must be {}", name(),
                            PackName(args.b_layout.pack), PackName(kind.pack)));
  }
  const OneDnnRows& ops = OneDnnRowsAvx512();
  const bool gated = IsGated(args), i8 = activations_ == Precision::kW8A8;
  auto* const staged = static_cast<std::byte*>(workspace.partials);
  auto* const row_scales = reinterpret_cast<float*>(staged + cut.staged_bytes());
  std::byte* const scratch = staged + cut.staged_bytes() + cut.scales_bytes();
  const auto* const weights = static_cast<const std::byte*>(args.b);
  const auto* const scales = reinterpret_cast<const float*>(
      weights + static_cast<std::size_t>(cut.strips) * cut.strip_bytes);
  const auto* const sums = reinterpret_cast<const std::int32_t*>(scales) +
                           static_cast<std::ptrdiff_t>(cut.strips) * kStripColumns;
  const auto* const a = static_cast<const float*>(args.a);
  Executor& executor = stream.exec();
  std::atomic<bool> refused{false};
  for (int first_row = 0; first_row < shape.m; first_row += cut.stage_rows) {
    const int rows = std::min(cut.stage_rows, shape.m - first_row);
    RunInLanes(executor, CeilDiv(rows, kStagedAtOnce), [&](int index, int) {
      const int first = index * kStagedAtOnce;
      for (int row = first; row < std::min(first + kStagedAtOnce, rows); ++row) {
        const float* const from = a + (first_row + row) * args.a_layout.ld;
        std::byte* const to = staged + static_cast<std::size_t>(row) * cut.row_bytes;
        if (i8) {
          row_scales[row] = ops.to_u8(from, shape.k, cut.padded_k, to);
        } else {
          (activations_ == Precision::kBF16 ? ops.to_bf16 : ops.to_f32)(from, shape.k, cut.padded_k,
                                                                        to);
        }
      }
    });
    RunInLanes(executor, CeilDiv(rows, cut.piece_rows) * cut.runs(), [&](int index, int worker) {
      const int row = index / cut.runs() * cut.piece_rows;
      const int strip = index % cut.runs() * cut.piece_strips;
      const int count = std::min(cut.piece_rows, rows - row);
      const int strips = std::min(cut.piece_strips, cut.strips - strip);
      const int column = strip * kStripColumns, columns = strips * kStripColumns;
      std::byte* const products_of = scratch + static_cast<std::size_t>(worker) * cut.sums_bytes();
      if (!products.Run(count < cut.piece_rows, strips < cut.piece_strips,
                        staged + static_cast<std::size_t>(row) * cut.row_bytes,
                        weights + static_cast<std::size_t>(strip) * cut.strip_bytes, products_of)) {
        refused.store(true, std::memory_order_relaxed);
        return;
      }
      if (i8) {
        for (int r = 0; r < count; ++r) {
          ops.scale(products_of + std::ptrdiff_t{4} * r * columns, columns, sums + column,
                    scales + column, row_scales[row + r]);
        }
      }
      const int d_column = gated ? column / 2 : column, d_row = first_row + row;
      ops.finish({.products = reinterpret_cast<const float*>(products_of),
                  .ld = columns,
                  .rows = count,
                  .columns = std::min(gated ? columns / 2 : columns, args.d_layout.cols - d_column),
                  .gated = gated,
                  .alpha = args.alpha,
                  .beta = args.beta,
                  .c = args.beta == 0.0f ? nullptr
                                         : static_cast<const float*>(args.c) +
                                               d_row * args.c_layout.ld + d_column,
                  .ldc = args.c_layout.ld,
                  .d = static_cast<float*>(args.d) + d_row * args.d_layout.ld + d_column,
                  .ldd = args.d_layout.ld});
    });
  }
  if (!refused) return {};
  return Fail(ErrorCode::kInternal, fmt::format("{}: oneDNN refused to run a product", name()));
}

}  // namespace tilewright::gemm
