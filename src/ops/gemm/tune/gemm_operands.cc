#include "ops/gemm/tune/gemm_operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/block_format.h"
#include "core/text.h"
#include "engine/tune/measuring.h"
#include "engine/tune/trial.h"

namespace tilewright {
namespace {

// All of the problem but the batch and what the caller does with the result.
std::string WeightKey(const GemmDesc& problem) {
  GemmDesc w;
  w.m = 1, w.n = problem.n, w.k = problem.k, w.num = problem.num;
  w.type_b = problem.type_b, w.type_v = problem.type_v, w.order_b = problem.order_b,
  w.quant_b = problem.quant_b;
  return KeyOf(w);
}

// Finite operands give finite results, so what is still NaN was never written.
std::string Unwritten(const GemmArgs& args) {
  const std::int64_t length = args.d_layout.ld;
  const std::int64_t lines =
      args.d_layout.order == Order::kRowMajor ? args.d_layout.rows : args.d_layout.cols;
  std::vector<float> line(static_cast<std::size_t>(length));
  const auto* bytes = static_cast<const char*>(args.d);
  for (std::int64_t i = 0; i < lines; ++i) {
    const auto* at = bytes + static_cast<std::size_t>(i) * BytesOf(args.d_layout.type, length);
    if (!DecodeRow(args.d_layout.type, at, length, line.data())) return "D cannot be decoded";
    for (std::int64_t j = 0; j < length; ++j) {
      const float value = line[static_cast<std::size_t>(j)];
      if (std::isfinite(value)) continue;
      return Format("line {} element {} of D is {}", i, j, value);
    }
  }
  return {};
}

/// Whether a CPU's kernel multiplies bf16, to which it rounds weights in blocks as well.
bool RoundsBlocksToBF16(const GemmDesc& problem, const KernelInfo& kernel) {
  constexpr std::uint32_t kMultiplyBF16 = kFeatureAvx512Bf16 | kFeatureAmxBf16;
  return kernel.device == DeviceKind::kCpu && (kernel.features & kMultiplyBF16) != 0 &&
         GetTypeInfo(problem.type_b).block_quantised;
}

}  // namespace

Status GemmOperands::Make(const GemmDesc& problem) {
  if (problem.striding_c == Striding::kIndexed ||
      (problem.striding_a == Striding::kIndexed && problem.num == 1)) {
    return Fail(
        ErrorCode::kUnsupported,
        Format("num = {}: rows of D, or of one group, that are indexed are not measured yet",
               problem.num));
  }
  if (problem.num > 1 &&
      (problem.quant_a.type != QuantType::kNone || problem.quant_b.type != QuantType::kNone)) {
    return Fail(ErrorCode::kUnsupported,
                Format("num = {}: scales beside the operands are not measured yet", problem.num));
  }
  if (problem.batch_dim != BatchDim::kM) {
    return Fail(ErrorCode::kUnsupported, "batch_dim = n: measure the transposed problem");
  }
  if (problem.pack_a != kPackPlain)
    return Fail(ErrorCode::kUnsupported, "pack_a: packed activations are not measured yet");
  problem_ = problem;
  std::string key = WeightKey(problem);
  if (key != weight_key_) {
    weight_key_.clear();
    rounded_b_ = Buffer();
    if (Status s = MakeWeights(); !s) return s;
    weight_key_ = std::move(key);
  }
  return MakeActivations();
}

MatrixLayout GemmOperands::PlainB() const {
  MatrixLayout b{problem_.type_b, problem_.order_b, problem_.k, problem_.n, problem_.k};
  if (problem_.order_b == Order::kRowMajor) b.ld = problem_.n;
  b.num = problem_.num;
  return b;
}

std::int64_t GemmOperands::ScalesOfB() const {
  if (problem_.quant_b.type == QuantType::kNone) return 0;
  const std::int64_t group = problem_.quant_b.group;
  const std::int64_t cols =
      problem_.quant_b.type == QuantType::kB ? (problem_.n + group - 1) / group : problem_.n;
  return problem_.k / group * cols;
}

Status GemmOperands::MakeWeights() {
  const MatrixLayout b = PlainB();
  const bool columns = b.order == Order::kColMajor;
  const std::int64_t lines = std::int64_t{b.num} * (columns ? b.cols : b.rows);
  plain_b_ = Buffer::Make(BytesOf(b.type, b.ld) * static_cast<std::size_t>(lines));
  if (!plain_b_) {
    return Fail(ErrorCode::kOutOfMemory,
                Format("no memory for {} x {} x {} weights", b.num, b.rows, b.cols));
  }
  if (auto s = FillWeights(b.type, lines, b.ld, SeedOf(trial_, 7), plain_b_.data()); !s) return s;
  const std::int64_t scales = ScalesOfB();
  v_ = Buffer();
  if (scales == 0) return {};
  v_ = Buffer::Make(BytesOf(problem_.type_v, scales * (Pairs() ? 2 : 1)));
  if (!v_) return Fail(ErrorCode::kOutOfMemory, Format("no memory for {} scales", scales));
  return FillScales(problem_.type_v, scales, 0.02, Pairs(), SeedOf(trial_, 8), v_.data());
}

Status GemmOperands::MakeActivations() {
  const GemmDesc& p = problem_;
  spreads_ = p.num > 1 ? RowSpreads(p.num, p.m, SeedOf(trial_, 13)) : RowSpreads();
  const bool rows = p.order_a == Order::kRowMajor;
  const std::int64_t lines = rows ? p.m : p.k, length = rows ? p.k : p.m;
  const std::int64_t d_cols = p.epilogue == Epilogue::kGatedSilu ? p.n / 2 : p.n;
  const std::size_t d_bytes = BytesOf(p.type_c, static_cast<std::int64_t>(p.m) * d_cols);
  for (int kind = 0; kind < 2; ++kind) {
    a_[kind] = Buffer::Make(BytesOf(p.type_a, length) * static_cast<std::size_t>(lines));
    if (!a_[kind])
      return Fail(ErrorCode::kOutOfMemory, Format("no memory for {} x {} activations", p.m, p.k));
    if (auto s = FillActivations(p.type_a, lines, length, static_cast<Activations>(kind),
                                 SeedOf(trial_, 9), a_[kind].data());
        !s)
      return s;
  }
  norm_ = Buffer();
  if (p.prologue != Prologue::kNone) {
    norm_ = Buffer::Make(BytesOf(p.type_norm, p.k));
    if (!norm_) return Fail(ErrorCode::kOutOfMemory, Format("no memory for a norm of {}", p.k));
    if (auto s = FillScales(p.type_norm, p.k, 1.0, false, SeedOf(trial_, 12), norm_.data()); !s)
      return s;
  }
  u_ = Buffer();
  if (p.quant_a.type != QuantType::kNone) {
    const std::int64_t count = static_cast<std::int64_t>(p.m) * (p.k / p.quant_a.group);
    u_ = Buffer::Make(BytesOf(p.type_u, count));
    if (!u_) return Fail(ErrorCode::kOutOfMemory, Format("no memory for {} scales", count));
    if (auto s = FillScales(p.type_u, count, 1.0, false, SeedOf(trial_, 10), u_.data()); !s)
      return s;
  }
  result_bytes_ = d_bytes;
  c_ = Buffer();
  if (p.scaling == Scaling::kOneZero) return {};
  c_ = Buffer::Make(d_bytes);
  if (!c_) return Fail(ErrorCode::kOutOfMemory, Format("no memory for C: {} bytes", d_bytes));
  return FillActivations(p.type_c, p.m, d_cols, Activations::kRandom, SeedOf(trial_, 11),
                         c_.data());
}

std::vector<Activations> GemmOperands::Kinds() const {
  if (problem_.epilogue == Epilogue::kGatedSilu && problem_.type_c == DataType::kF16)
    return {Activations::kRandom};
  return {Activations::kWholeNumbers, Activations::kRandom};
}

GemmArgs GemmOperands::Args(Activations kind) const {
  const GemmDesc& p = problem_;
  GemmArgs args;
  args.alpha = p.scaling == Scaling::kAny ? -0.5f : 1.0f;
  args.beta =
      p.scaling == Scaling::kOneZero ? 0.0f : (p.scaling == Scaling::kOneOne ? 1.0f : 0.25f);
  args.a = a_[static_cast<int>(kind)].data();
  args.a_layout = {p.type_a, p.order_a, p.m, p.k, p.order_a == Order::kRowMajor ? p.k : p.m};
  if (u_) {
    args.u = u_.data();
    args.u_layout = {p.type_u, Order::kRowMajor, p.m, p.k / p.quant_a.group, p.k / p.quant_a.group};
  }
  if (norm_) {
    args.prologue = p.prologue;
    args.norm = norm_.data();
    args.type_norm = p.type_norm;
    args.epsilon = 1e-5f;
  }
  args.b = plain_b_.data();
  args.b_layout = PlainB();
  if (v_) {
    const std::int32_t groups = p.k / p.quant_b.group,
                       width = static_cast<std::int32_t>(ScalesOfB() / groups);
    args.v = v_.data();
    args.v_layout = {p.type_v, Order::kRowMajor, groups, width, width};
  }
  const std::int32_t d_cols = p.epilogue == Epilogue::kGatedSilu ? p.n / 2 : p.n;
  args.d_layout = {p.type_c, p.order_c, p.m, d_cols, p.order_c == Order::kRowMajor ? d_cols : p.m};
  args.c_layout = args.d_layout;
  args.c = c_ ? c_.data() : nullptr;
  if (!spreads_.empty()) {
    PutSpread(kind == Activations::kWholeNumbers ? spreads_.hot() : spreads_.mixture(0), args);
    args.a_layout.num = args.c_layout.num = args.d_layout.num = p.num;
    if (p.striding_a == Striding::kIndexed) args.a_layout.idxs = spreads_.sources();
  }
  return args;
}

void GemmOperands::PutSpread(const std::int32_t* offsets, GemmArgs& args) const {
  for (MatrixLayout* layout : {&args.a_layout, &args.c_layout, &args.d_layout})
    layout->offsets = offsets;
}

void GemmOperands::PutMixture(int launch, GemmArgs& args) const {
  if (!spreads_.empty()) PutSpread(spreads_.mixture(launch % RowSpreads::kMixtures), args);
}

Status GemmOperands::MakeRounded(Executor& executor) {
  const DataType type = problem_.type_a;
  if (rounded_b_ && rounded_type_ == type) return {};
  const MatrixLayout b = PlainB();
  const std::int64_t columns = b.cols, length = b.ld;
  rounded_b_ = Buffer::Make(BytesOf(type, length) * static_cast<std::size_t>(columns));
  if (!rounded_b_) return Fail(ErrorCode::kOutOfMemory, "no memory for unpacked weights");
  rounded_type_ = type;
  constexpr std::int64_t kAtOnce = 64;
  std::vector<Status> made(static_cast<std::size_t>((columns + kAtOnce - 1) / kAtOnce));
  executor.Run(static_cast<int>(made.size()), [&](int task, int) {
    std::vector<float> column(static_cast<std::size_t>(length));
    const std::int64_t first = task * kAtOnce, last = std::min(columns, first + kAtOnce);
    for (std::int64_t i = first; i < last && made[static_cast<std::size_t>(task)]; ++i) {
      const auto at = static_cast<std::size_t>(i);
      Status s = DecodeRow(b.type, plain_b_.as<char>() + at * BytesOf(b.type, length), length,
                           column.data());
      if (s) {
        s = EncodeRow(type, column.data(), length,
                      rounded_b_.as<char>() + at * BytesOf(type, length));
      }
      made[static_cast<std::size_t>(task)] = std::move(s);
    }
  });
  for (const Status& s : made) {
    if (!s) return s;
  }
  return {};
}

Tuner::Outcome GemmOperands::Compare(const GemmArgs& args, DataType type_b,
                                     const GemmCheck& check) const {
  GemmDesc plain = problem_;
  plain.pack_b = kPackPlain;
  plain.type_b = type_b;
  const Result<GemmError> error = CheckGemm(args, plain, check);
  if (!error) return Failed(error.error());
  if (error->worst <= 1) return {};
  return Failed(Verdict::kWrong,
                Format("d[{}, {}] = {} where the oracle has {}: {:.3g} times the tolerance "
                       "(operands of seed {})",
                       error->row, error->col, error->got, error->want, error->worst, trial_.seed));
}

Tuner::Outcome GemmOperands::Judge(const Kernel& kernel, Activations kind, void* d,
                                   Executor& executor) {
  GemmArgs args = Args(kind);
  args.d = d;
  if (std::string missing = Unwritten(args); !missing.empty())
    return Failed(Verdict::kWrong, std::move(missing));
  GemmCheck check;
  check.executor = &executor;
  // Scaled and normalised activations are rounded afterwards, so whole numbers stay whole only
  // without scales and a norm.
  const bool exact = kind == Activations::kWholeNumbers &&
                     problem_.quant_a.type == QuantType::kNone &&
                     problem_.prologue == Prologue::kNone;
  check.activations = kernel.desc().activations;
  // What a product is off by does not depend on which of its factors was rounded. With one scale a row
  // whole numbers are rounded as others are.
  if (exact && check.activations != Precision::kW8A8)
    check.activations =
        RoundsBlocksToBF16(problem_, kernel.info()) ? Precision::kBF16 : Precision::kF32;
  constexpr double kWholeCheck = 4e6;  // products; beyond, rows and columns are picked
  if (static_cast<double>(problem_.m) * problem_.n * problem_.k > kWholeCheck)
    check.max_rows = 12, check.max_cols = 96;
  Tuner::Outcome outcome = Compare(args, problem_.type_b, check);
  const bool may_round = kernel.info().device == DeviceKind::kCuda &&
                         GetTypeInfo(problem_.type_b).block_quantised &&
                         (problem_.type_a == DataType::kBF16 || problem_.type_a == DataType::kF16);
  if (outcome.verdict != Verdict::kWrong || !may_round) return outcome;
  if (Status s = MakeRounded(executor); !s) return Failed(s.error());
  args.b = rounded_b_.data();
  args.b_layout.type = problem_.type_a;
  return Compare(args, problem_.type_a, check).verdict == Verdict::kOk ? Tuner::Outcome() : outcome;
}

Pack LayoutFor(const GemmDesc& problem, const Kernel& kernel) {
  return problem.pack_b == kPackAny ? kernel.desc().pack_b : problem.pack_b;
}

Result<std::size_t> PackedBytesFor(const GemmOperands& operands, const Kernel& kernel) {
  if (LayoutFor(operands.problem(), kernel) == kPackPlain) return operands.plain_b().size();
  const std::size_t bytes = kernel.PackedBytes(operands.PlainB());
  if (bytes > 0) return bytes;
  return Fail(ErrorCode::kInternal, Format("{} gives no size for packed weights", kernel.name()));
}

Status PackFor(const GemmOperands& operands, const Kernel& kernel, void* packed, Stream stream) {
  const Buffer& plain = operands.plain_b();
  if (LayoutFor(operands.problem(), kernel) != kPackPlain)
    return kernel.PackB(plain.data(), operands.PlainB(), packed, stream);
  std::memcpy(packed, plain.data(), plain.size());
  return {};
}

}  // namespace tilewright
