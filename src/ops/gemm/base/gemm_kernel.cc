#include <algorithm>
#include <tuple>

#include "core/formats/formats.h"
#include "core/text.h"
#include "engine/problem_key.h"
#include "tilewright/gemm.h"

namespace tilewright {
namespace {

constexpr std::string_view kOrderWords[] = {"column-major", "row-major"};
constexpr std::string_view kStridingWords[] = {"flat", "blocked", "indexed"};
constexpr std::string_view kQuantWords[] = {"none", "k", "b"};
constexpr std::string_view kEpilogueWords[] = {"none", "gated_silu"};
constexpr std::string_view kPrologueWords[] = {"none", "rms_norm"};
constexpr std::string_view kScalingWords[] = {"alpha 1 beta 0", "alpha 1 beta 1",
                                              "any alpha and beta"};

template <class E, std::size_t N>
std::string MaskText(std::uint32_t mask, const std::string_view (&words)[N]) {
  std::string text;
  for (std::size_t i = 0; i < N; ++i) {
    if ((mask >> i & 1u) == 0) continue;
    if (!text.empty()) text += " or ";
    text += words[i];
  }
  return text;
}

std::string TypeMaskText(std::uint32_t mask) {
  std::string text;
  for (int i = 0; i < kDataTypeCount; ++i) {
    if ((mask >> i & 1u) == 0) continue;
    if (!text.empty()) text += " or ";
    text += DataTypeName(static_cast<DataType>(i));
  }
  return text;
}

// Feasibility runs in every bounded cache lookup: the comparisons are inline, and the text is built
// in another function, only when one fails.
template <class E>
constexpr bool In(std::uint32_t mask, E value) {
  return (mask & Bit(value)) != 0;
}
constexpr bool PackFits(Pack have, Pack want) { return have == want || have == kPackAny; }

template <class E, std::size_t N>
[[gnu::cold, gnu::noinline]] Rejection NotIn(Reason reason, std::string_view field, E value,
                                             std::uint32_t mask,
                                             const std::string_view (&words)[N]) {
  return {reason, Format("{} = {}", field, words[static_cast<std::size_t>(value)]),
          MaskText<E>(mask, words)};
}
[[gnu::cold, gnu::noinline]] Rejection WrongType(std::string_view field, DataType type,
                                                 std::uint32_t mask) {
  return {Reason::kType, Format("{} = {}", field, DataTypeName(type)), TypeMaskText(mask)};
}
[[gnu::cold, gnu::noinline]] Rejection WrongPack(std::string_view field, Pack have, Pack want) {
  return {Reason::kPack, Format("{} = {}", field, PackName(have)), PackName(want)};
}
[[gnu::cold, gnu::noinline]] Rejection NotMultiple(std::string_view field, std::int32_t value,
                                                   std::int32_t of) {
  return {Reason::kShape, Format("{} = {}", field, value),
          Format("{} a multiple of {}", field, of)};
}

// Bits of relative precision that a step to `type` keeps; a kernel that rounds to at least as many
// as the operand has loses nothing.
bool RoundsNothing(DataType type, Precision activations) {
  if (activations == Precision::kF32) return true;
  if (activations == Precision::kBF16) {
    return type == DataType::kBF16 || type == DataType::kF8E4M3 || type == DataType::kI8;
  }
  return activations == Precision::kI8 && type == DataType::kI8;
}

// How far kAuto lets the activations be rounded, by what the weights are.
Precision AutoPrecision(DataType weights, const Quant& quant) {
  if (GetTypeInfo(weights).block_quantised || weights == DataType::kU4) return Precision::kI8;
  if (weights == DataType::kBF16 || weights == DataType::kF8E4M3 || quant.type != QuantType::kNone)
    return Precision::kBF16;
  return Precision::kF32;
}

std::optional<Rejection> CheckPrecision(const GemmDesc& p, Precision rounds_a_to) {
  if (RoundsNothing(p.type_a, rounds_a_to)) return std::nullopt;
  if (p.batch_dim == BatchDim::kN) {
    return Rejection{Reason::kPrecision, "A holds the weights (batch_dim = n)",
                     Format("activations in A: the kernel rounds A to {}",
                            kPrecisionWords[static_cast<int>(rounds_a_to)])};
  }
  const Precision limit =
      p.precision == Precision::kAuto ? AutoPrecision(p.type_b, p.quant_b) : p.precision;
  if (static_cast<int>(rounds_a_to) <= static_cast<int>(limit)) return std::nullopt;
  return Rejection{
      Reason::kPrecision,
      Format("activations may be rounded to {} at most", kPrecisionWords[static_cast<int>(limit)]),
      Format("{}", kPrecisionWords[static_cast<int>(rounds_a_to)])};
}

}  // namespace

std::optional<Rejection> Kernel::IsFeasible(const GemmDesc& p) const {
  const KernelDesc& d = desc_;
  if (!In(d.type_a, p.type_a)) return WrongType("type_a", p.type_a, d.type_a);
  if (!In(d.type_b, p.type_b)) return WrongType("type_b", p.type_b, d.type_b);
  if (!In(d.type_c, p.type_c)) return WrongType("type_c", p.type_c, d.type_c);
  if (!In(d.order_a, p.order_a))
    return NotIn(Reason::kOrder, "order_a", p.order_a, d.order_a, kOrderWords);
  if (!In(d.order_b, p.order_b))
    return NotIn(Reason::kOrder, "order_b", p.order_b, d.order_b, kOrderWords);
  if (!In(d.order_c, p.order_c))
    return NotIn(Reason::kOrder, "order_c", p.order_c, d.order_c, kOrderWords);
  if (!In(d.striding_a, p.striding_a)) {
    return NotIn(Reason::kStriding, "striding_a", p.striding_a, d.striding_a, kStridingWords);
  }
  if (!In(d.striding_b, p.striding_b)) {
    return NotIn(Reason::kStriding, "striding_b", p.striding_b, d.striding_b, kStridingWords);
  }
  if (!In(d.striding_c, p.striding_c)) {
    return NotIn(Reason::kStriding, "striding_c", p.striding_c, d.striding_c, kStridingWords);
  }
  if (!PackFits(p.pack_a, d.pack_a)) return WrongPack("pack_a", p.pack_a, d.pack_a);
  if (!PackFits(p.pack_b, d.pack_b)) return WrongPack("pack_b", p.pack_b, d.pack_b);
  if (!In(d.quant_a, p.quant_a.type))
    return NotIn(Reason::kQuant, "quant_a", p.quant_a.type, d.quant_a, kQuantWords);
  if (!In(d.quant_b, p.quant_b.type))
    return NotIn(Reason::kQuant, "quant_b", p.quant_b.type, d.quant_b, kQuantWords);
  if (!In(d.epilogue, p.epilogue))
    return NotIn(Reason::kEpilogue, "epilogue", p.epilogue, d.epilogue, kEpilogueWords);
  if (!In(d.prologue, p.prologue))
    return NotIn(Reason::kPrologue, "prologue", p.prologue, d.prologue, kPrologueWords);
  if (!In(d.scaling, p.scaling))
    return NotIn(Reason::kScaling, "scaling", p.scaling, d.scaling, kScalingWords);
  if (d.activations != Precision::kF32) {
    if (auto no = CheckPrecision(p, d.activations)) return no;
  }
  if (p.guarantee != Guarantee::kFastest) {
    if (auto no = CheckGuarantee(p.guarantee)) return no;
  }
  if (d.max_m > 0 && p.m > d.max_m) {
    return Rejection{Reason::kShape, Format("m = {}", p.m), Format("m <= {}", d.max_m)};
  }
  if (d.align_n > 1 && p.n % d.align_n != 0) return NotMultiple("n", p.n, d.align_n);
  if (d.align_k > 1 && p.k % d.align_k != 0) return NotMultiple("k", p.k, d.align_k);
  return std::nullopt;
}

int Kernel::GetMaxSwizzle(const GemmShape&) const { return 0; }
int Kernel::GetMaxSplits(const GemmShape&, int, std::size_t, std::size_t) const { return 1; }
std::size_t Kernel::PartialsBytes(const GemmDesc&, const LaunchSpec&, const DeviceSpec&) const {
  return 0;
}
WorkspaceSize Kernel::WorkspaceFor(const GemmDesc& problem, const LaunchSpec& spec,
                                   const DeviceSpec& device) const {
  return {.partials = PartialsBytes(problem, spec, device)};
}

std::vector<LaunchSpec> Kernel::Specs(const GemmDesc& problem, const DeviceSpec&,
                                      const LaunchLimits& limits) const {
  // Split counts between the powers of two matter when tiles do not divide among the workers;
  // beyond these few the times of neighbours cannot be told apart.
  constexpr int kSplitLadder[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  const GemmShape shape{problem.m, problem.n, problem.k, problem.num};
  const int max_swizzle = std::max(0, GetMaxSwizzle(shape));
  const auto max_splits = [&](int swizzle) {
    const int most = GetMaxSplits(shape, swizzle, limits.barriers_bytes, limits.partials_bytes);
    return std::clamp(most, 1, std::max(1, limits.max_splits));
  };
  const int most_splits = max_splits(0);
  std::vector<LaunchSpec> specs;
  for (const int splits : kSplitLadder) {
    if (splits > most_splits) break;
    for (int swizzle = 0; swizzle <= max_swizzle; ++swizzle) {
      if (splits > 1 && splits > max_splits(swizzle)) continue;
      LaunchSpec spec;
      spec.swizzle = swizzle;
      spec.splits = splits;
      specs.push_back(spec);
    }
  }
  return specs;
}

std::size_t Kernel::PackedBytes(const MatrixLayout&) const { return 0; }

Status Kernel::PackB(const void*, const MatrixLayout&, void*, Stream) const {
  return Fail(ErrorCode::kUnsupported,
              Format("kernel {} reads plain weights: nothing to pack", name()));
}

namespace {

KernelInfo TransposedInfo(const Kernel& inner) {
  KernelInfo info = inner.info();
  info.name += ".transposed";
  return info;
}

std::uint32_t FlipOrders(std::uint32_t mask) {
  return ((mask & Bit(Order::kRowMajor)) != 0 ? Bit(Order::kColMajor) : 0u) |
         ((mask & Bit(Order::kColMajor)) != 0 ? Bit(Order::kRowMajor) : 0u);
}

KernelDesc TransposedDesc(const KernelDesc& inner) {
  KernelDesc d = inner;
  d.type_a = inner.type_b, d.type_b = inner.type_a;
  d.order_a = FlipOrders(inner.order_b), d.order_b = FlipOrders(inner.order_a),
  d.order_c = FlipOrders(inner.order_c);
  d.striding_a = inner.striding_b, d.striding_b = inner.striding_a;
  d.quant_a = inner.quant_b, d.quant_b = inner.quant_a;
  d.pack_a = inner.pack_b, d.pack_b = inner.pack_a;
  d.tile_m = inner.tile_n, d.tile_n = inner.tile_m;
  d.epilogue = Bit(Epilogue::kNone);
  d.prologue = Bit(Prologue::kNone);
  d.max_m = 0, d.align_n = 1;  // these bound the inner kernel's dimensions; IsFeasible asks it
  d.transpose = !inner.transpose;
  return d;
}

MatrixLayout Transposed(const MatrixLayout& layout) {
  MatrixLayout t = layout;
  t.order = Flip(layout.order);
  t.rows = layout.cols, t.cols = layout.rows;
  return t;
}

class TransposedKernel final : public Kernel {
 public:
  explicit TransposedKernel(Kernel& inner)
      : Kernel(TransposedInfo(inner), TransposedDesc(inner.desc())), inner_(inner) {}

  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override {
    if (problem.epilogue == Epilogue::kGatedSilu) {
      return Rejection{Reason::kEpilogue, "epilogue = gated_silu",
                       "an untransposed kernel: the pairs run along n"};
    }
    if (problem.prologue != Prologue::kNone) {
      return Rejection{Reason::kPrologue, "prologue = rms_norm",
                       "an untransposed kernel: the prologue is that of A"};
    }
    return inner_.IsFeasible(tilewright::Transpose(problem));
  }
  int GetMaxSwizzle(const GemmShape& shape) const override {
    return inner_.GetMaxSwizzle(Flipped(shape));
  }
  int GetMaxSplits(const GemmShape& shape, int swizzle, std::size_t barriers_size,
                   std::size_t partials_size) const override {
    return inner_.GetMaxSplits(Flipped(shape), swizzle, barriers_size, partials_size);
  }
  std::vector<LaunchSpec> Specs(const GemmDesc& problem, const DeviceSpec& device,
                                const LaunchLimits& limits) const override {
    return inner_.Specs(tilewright::Transpose(problem), device, limits);
  }
  std::span<const ConfigField> ConfigFields() const override { return inner_.ConfigFields(); }
  std::string ConfigText(const LaunchConfig& config) const override {
    return inner_.ConfigText(config);
  }
  std::optional<LaunchConfig> ParseConfig(std::string_view text) const override {
    return inner_.ParseConfig(text);
  }
  std::size_t PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                            const DeviceSpec& device) const override {
    return inner_.PartialsBytes(tilewright::Transpose(problem), InnerSpec(spec), device);
  }
  WorkspaceSize WorkspaceFor(const GemmDesc& problem, const LaunchSpec& spec,
                             const DeviceSpec& device) const override {
    return inner_.WorkspaceFor(tilewright::Transpose(problem), InnerSpec(spec), device);
  }
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec& device) const override {
    return inner_.EstimateUs(tilewright::Transpose(problem), InnerSpec(spec), device);
  }
  Status Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                Stream stream) override {
    GemmArgs t = args;
    t.a = args.b, t.b = args.a;
    t.constant_b = false;
    t.u = args.v, t.v = args.u;
    t.a_layout = Transposed(args.b_layout), t.b_layout = Transposed(args.a_layout);
    t.u_layout = Transposed(args.v_layout), t.v_layout = Transposed(args.u_layout);
    t.c_layout = Transposed(args.c_layout), t.d_layout = Transposed(args.d_layout);
    return inner_.Launch(t, InnerSpec(spec), workspace, stream);
  }

 private:
  static GemmShape Flipped(const GemmShape& s) { return {s.n, s.m, s.k, s.num}; }
  LaunchSpec InnerSpec(const LaunchSpec& spec) const {
    LaunchSpec inner = spec;
    inner.kernel = &inner_;
    return inner;
  }

  Kernel& inner_;
};

}  // namespace

std::unique_ptr<Kernel> Transpose(Kernel& kernel) {
  return std::make_unique<TransposedKernel>(kernel);
}

std::vector<std::vector<LaunchSpec>> Cluster(std::span<const LaunchSpec> specs,
                                             const ClusteringParam& param) {
  using Key = std::tuple<int, int, int, int, int, int, int>;
  const auto key_of = [&param](const LaunchSpec& spec) {
    const KernelDesc& d = spec.kernel->desc();
    return Key{
        param.tile ? d.tile_m : 0,      param.tile ? d.tile_n : 0,
        param.tile ? d.tile_k : 0,      param.precision ? static_cast<int>(d.activations) : 0,
        param.splits ? spec.splits : 0, param.pack ? d.pack_a : 0,
        param.pack ? d.pack_b : 0};
  };
  std::vector<std::vector<LaunchSpec>>
      clusters;  // in order of first appearance, so a ranked list keeps its leaders
  std::vector<Key> keys;
  for (const LaunchSpec& spec : specs) {
    const Key key = key_of(spec);
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) {
      keys.push_back(key);
      clusters.push_back({spec});
    } else {
      clusters[static_cast<std::size_t>(found - keys.begin())].push_back(spec);
    }
  }
  return clusters;
}

}  // namespace tilewright
