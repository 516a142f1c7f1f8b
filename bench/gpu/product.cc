#include "gpu/product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>

#include "core/block_format.h"
#include "core/random.h"
#include "core/text.h"
#include "gpu/cublaslt.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/reference.h"

namespace tilewright::gpu_check {
namespace {

bool Blocked(DataType type) { return GetTypeInfo(type).block_quantised; }

/// One operand on the host. What lies between and before its lines is NaN.
struct Operand {
  MatrixLayout layout;
  std::size_t skip_bytes = 0;
  std::vector<std::byte> bytes;

  const void* data() const { return bytes.data() + skip_bytes; }
};

struct Placement {
  int pad = 0;            ///< elements between the lines
  int skip = 0;           ///< elements before the first; of blocks: bytes
  bool periodic = false;  ///< PeriodicBytes
};

Operand RandomOperand(DataType type, Order order, int rows, int cols, const Placement& placement,
                      std::uint64_t seed) {
  const int lines = order == Order::kRowMajor ? rows : cols;
  const int length = order == Order::kRowMajor ? cols : rows;
  Operand operand;
  operand.layout = {.type = type,
                    .order = order,
                    .rows = rows,
                    .cols = cols,
                    .ld = std::int64_t{length} + placement.pad};
  operand.skip_bytes =
      Blocked(type) ? static_cast<std::size_t>(placement.skip) : BytesOf(type, placement.skip);
  const std::size_t line_bytes = BytesOf(type, operand.layout.ld);
  operand.bytes.assign(operand.skip_bytes + static_cast<std::size_t>(lines) * line_bytes,
                       std::byte{0xff});
  const std::vector<std::byte> dense = (placement.periodic ? PeriodicBytes : RandomBytes)(
      type, std::int64_t{lines} * length, 1, seed);
  const std::size_t dense_bytes = BytesOf(type, length);
  for (std::size_t i = 0; i < static_cast<std::size_t>(lines); ++i) {
    std::memcpy(operand.bytes.data() + operand.skip_bytes + i * line_bytes,
                dense.data() + i * dense_bytes, dense_bytes);
  }
  return operand;
}

/// Everything of one problem, on the host and on the GPU.
class Product {
 public:
  Product(const Job& job, const ProductShape& shape)
      : job_(job),
        spec_(job.kernel.spec()),
        shape_(shape),
        a_(RandomOperand(spec_.type_a, spec_.order_a, shape.m, shape.k,
                         {.pad = shape.pad_a, .skip = shape.skip, .periodic = job.time}, job.seed)),
        b_(RandomOperand(spec_.type_b, spec_.order_b, shape.k, shape.n,
                         {.pad = shape.pad_b, .skip = shape.skip, .periodic = job.time},
                         job.seed + 1)),
        columns_(Gated() ? shape.n / 2 : shape.n),
        d_layout_{.type = spec_.type_d,
                  .rows = shape.m,
                  .cols = columns_,
                  .ld = std::int64_t{columns_} + shape.pad_d},
        device_a_(job.gpu, a_.bytes),
        device_d_(job.gpu, static_cast<std::size_t>(shape.m) * RowBytes()) {
    AddSets(1);
    if (GemvNormalises(spec_)) {
      norm_ = RandomBytes(DataType::kF32, shape.k, 1, job.seed + 3);
      device_norm_.emplace(job.gpu, norm_);
    }
    if (spec_.type_c == DataType::kNone) return;
    c_ = RandomOperand(spec_.type_c, Order::kRowMajor, shape.m, shape.n,
                       {.pad = shape.pad_d, .periodic = job.time}, job.seed + 2);
    device_c_.emplace(job.gpu, c_.bytes.size());
    // Where C must not be read it stays NaN.
    if (shape.addend == Addend::kSeparate) device_c_->Upload(c_.bytes);
  }

  /// More copies of B, so that there are `sets` of them.
  void AddSets(int sets) {
    while (static_cast<int>(device_b_.size()) < sets) {
      device_b_.push_back(std::make_unique<Guarded>(job_.gpu, b_.bytes));
    }
  }
  std::size_t b_bytes() const { return b_.bytes.size(); }

  /// The call, on the GPU's memory.
  GemmArgs Args(int set) const {
    const auto pointer = [](const Guarded& memory, std::size_t skip) {
      return reinterpret_cast<void*>(memory.address() + skip);
    };
    GemmArgs args = Problem();
    args.a = pointer(device_a_, a_.skip_bytes);
    args.b = pointer(*device_b_[static_cast<std::size_t>(set)], b_.skip_bytes);
    args.d = pointer(device_d_, 0);
    if (device_norm_) args.norm = pointer(*device_norm_, 0);
    if (device_c_) {
      args.c = pointer(shape_.addend == Addend::kInPlace ? device_d_ : *device_c_, 0);
    }
    return args;
  }

  CaseReport Check(const ProductLauncher& launcher) const {
    CaseReport report;
    report.shape = shape_.Name();
    const auto reset = [&] {
      if (shape_.addend == Addend::kInPlace) device_d_.Upload(c_.bytes);
    };
    std::vector<const Guarded*> others{&device_a_, device_b_[0].get()};
    if (device_c_) others.push_back(&*device_c_);
    if (device_norm_) others.push_back(&*device_norm_);
    const auto launch = [&] { job_.kernel.Launch(launcher(spec_, Args(0), job_.gpu.spec)); };
    std::vector<std::byte> bytes = RunTwice(job_.gpu, device_d_, others, reset, launch, report);
    CheckPadding(bytes, report);
    Compare(bytes, report);
    CheckFinite(bytes, report);
    return report;
  }

  double FewestBytes() const {
    return static_cast<double>(BytesOf(spec_.type_a, std::int64_t{shape_.m} * shape_.k) +
                               BytesOf(spec_.type_b, std::int64_t{shape_.n} * shape_.k) +
                               BytesOf(spec_.type_d, std::int64_t{shape_.m} * columns_));
  }

 private:
  bool Gated() const { return spec_.epilogue == SpecEpilogue::kSwiGlu; }
  Precision Activations() const {
    return spec_.family == FamilyName("gemv_int8") ? Precision::kI8 : Precision::kF32;
  }

  /// Layouts and factors without pointers.
  GemmArgs Problem() const {
    GemmArgs args;
    args.alpha = shape_.alpha;
    args.beta = shape_.addend == Addend::kNone ? 0.0f : 0.5f;
    args.a_layout = a_.layout;
    args.b_layout = b_.layout;
    args.c_layout = c_.layout;
    args.d_layout = d_layout_;
    if (device_norm_) {
      args.prologue = Prologue::kRmsNorm;
      args.type_norm = DataType::kF32;
      args.epsilon = 1e-5f;
    }
    return args;
  }

  std::size_t RowBytes() const { return BytesOf(d_layout_.type, d_layout_.ld); }

  /// What lies between the rows of D must be as it was.
  void CheckPadding(const std::vector<std::byte>& bytes, CaseReport& report) const {
    const std::size_t dense = BytesOf(d_layout_.type, columns_);
    for (int row = 0; row < shape_.m; ++row) {
      for (std::size_t i = dense; i < RowBytes(); ++i) {
        // C in place has NaN there as well.
        if (bytes[static_cast<std::size_t>(row) * RowBytes() + i] == std::byte{0xff}) continue;
        report.trouble =
            Format("row {}: byte {} beyond column {} was written", row, i - dense, columns_);
        return;
      }
    }
  }

  /// The sampled rows against the oracle of the room.
  void Compare(std::vector<std::byte>& bytes, CaseReport& report) const {
    const std::vector<std::int32_t> rows = SampledRows();
    GemmArgs args = Problem();
    args.a = a_.data();
    args.b = b_.data();
    args.c = c_.data();
    args.d = bytes.data();
    args.norm = norm_.data();
    for (MatrixLayout* layout : {&args.a_layout, &args.c_layout, &args.d_layout}) {
      layout->rows = static_cast<std::int32_t>(rows.size());
      layout->idxs = rows.data();
    }
    GemmDesc desc;
    desc.m = shape_.m, desc.n = shape_.n, desc.k = shape_.k;
    desc.type_a = spec_.type_a, desc.type_b = spec_.type_b, desc.type_c = spec_.type_d;
    desc.prologue = args.prologue, desc.type_norm = args.type_norm;
    if (Gated()) desc.epilogue = Epilogue::kGatedSilu;
    const GemmError error =
        Must(CheckGemm(args, desc, {.activations = Activations(), .executor = &Workers()}),
             "the oracle of the GEMM room");
    report.compared = error.compared;
    report.worst = error.worst;
    report.rel_l2 = error.error_l2 / error.want_l2;
    // Products that cancelled count with the size that a sum of random signs is expected to have.
    const double root_k = std::sqrt(static_cast<double>(shape_.k));
    const double expected = error.magnitude_l2 / root_k / error.want_l2;
    // Steps of a 127th of the largest of 32 are off by a root of 12 of that: 0.4 % of uniform values.
    const double rounding = Activations() == Precision::kI8 ? 0x1p-6 : root_k * 0x1p-22;
    report.limit = UnitRoundoff(spec_.type_d) + rounding * std::max(1.0, expected);
    if (error.compared == 0) report.Blame("nothing was compared");
    // Written so that NaN is wrong.
    if (!(error.worst <= 1)) {
      report.Blame(Format("[{}][{}] is {:.9g}, must be {:.9g}: {:.3g} times what is allowed",
                          rows[static_cast<std::size_t>(error.row)], error.col, error.got,
                          error.want, error.worst));
    }
    if (!(report.rel_l2 <= report.limit)) {
      report.Blame(Format("relative L2 error {:.3g}, limit {:.3g}", report.rel_l2, report.limit));
    }
  }

  /// The rows that were not sampled must at least hold numbers.
  void CheckFinite(const std::vector<std::byte>& bytes, CaseReport& report) const {
    std::vector<double> values(static_cast<std::size_t>(columns_));
    for (int row = 0; row < shape_.m; ++row) {
      Must(DecodeRow(d_layout_.type, bytes.data() + static_cast<std::size_t>(row) * RowBytes(),
                     columns_, values.data()),
           "decode");
      const auto odd = std::find_if(values.begin(), values.end(),
                                    [](double value) { return !std::isfinite(value); });
      if (odd == values.end()) continue;
      report.Blame(Format("[{}][{}] is no finite number", row, odd - values.begin()));
      return;
    }
  }

  std::vector<std::int32_t> SampledRows() const {
    constexpr double kAll = 1 << 28;
    std::vector<std::int32_t> rows;
    if (static_cast<double>(shape_.m) * shape_.n * shape_.k <= kAll) {
      for (int row = 0; row < shape_.m; ++row) rows.push_back(row);
      return rows;
    }
    const int tile_m = spec_.tile_m;
    rows = {0, tile_m - 1, tile_m, shape_.m / tile_m * tile_m - 1, shape_.m - 1};
    Random random(job_.seed);
    while (rows.size() < 24) {
      rows.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(shape_.m)));
    }
    for (std::int32_t& row : rows) row = std::clamp(row, 0, shape_.m - 1);
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }

  const Job& job_;
  const KernelSpec& spec_;
  ProductShape shape_;
  Operand a_, b_, c_;
  std::int32_t columns_;  ///< of D
  MatrixLayout d_layout_;
  Guarded device_a_, device_d_;
  std::vector<std::unique_ptr<Guarded>> device_b_;
  std::vector<std::byte> norm_;
  std::optional<Guarded> device_c_, device_norm_;
};

}  // namespace

std::string ProductShape::Name() const {
  std::string name = Format("{}x{}x{}", m, n, k);
  if (pad_a + pad_b + pad_d > 0) name += Format(" pads {}+{}+{}", pad_a, pad_b, pad_d);
  if (skip > 0) name += Format(" skip {}", skip);
  if (addend == Addend::kSeparate) name += " plus C";
  if (addend == Addend::kInPlace) name += " plus D";
  return name;
}

void CheckProducts(const Job& job, const std::vector<ProductShape>& shapes,
                   const ProductLauncher& launcher, KernelReport& report) {
  constexpr double kSmall = 1 << 24;
  for (const ProductShape& shape : shapes) {
    if (job.small && static_cast<double>(shape.m) * shape.n * shape.k > kSmall) continue;
    report.cases.push_back(Product(job, shape).Check(launcher));
  }
}

void TimeProducts(const Job& job, const std::vector<ProductShape>& shapes, bool cold,
                  const ProductLauncher& launcher, KernelReport& report) {
  for (const ProductShape& shape : shapes) {
    Product product(job, shape);
    const int sets = cold ? ColdSets(job.gpu, product.b_bytes()) : 1;
    product.AddSets(sets);
    const Replay replay(job.gpu, sets, [&](int set) {
      job.kernel.Launch(launcher(job.kernel.spec(), product.Args(set), job.gpu.spec));
    });
    TimeReport time = TimeReplay(replay);
    time.shape = shape.Name();
    time.bytes = product.FewestBytes();
    time.flops = 2.0 * shape.m * shape.n * shape.k;
    time.unit = "bf16";
    if (job.kernel.spec().epilogue == SpecEpilogue::kSwiGlu) {
      report.times.push_back(time);
      continue;
    }
    if (const auto theirs =
            FastestCublasLt(job.gpu, sets, [&](int set) { return product.Args(set); })) {
      const Replay other(job.gpu, sets, theirs);
      std::tie(time.beside_us, time.cublaslt_us) = TimeAlternately(replay, other);
    }
    report.times.push_back(time);
  }
}

namespace {

WorkspaceSize MostOf(const Job& job, const std::vector<ProductShape>& checked,
                     const std::vector<ProductShape>& timed, const WorkspaceOf& size_of) {
  WorkspaceSize most;
  for (const auto* shapes : {&checked, &timed}) {
    for (const ProductShape& shape : *shapes) {
      const WorkspaceSize size =
          size_of(job.kernel.spec(), {.m = shape.m, .n = shape.n, .k = shape.k}, job.gpu.spec);
      most.partials = std::max(most.partials, size.partials);
      most.barriers = std::max(most.barriers, size.barriers);
    }
  }
  return most;
}

}  // namespace

ProductWorkspace::ProductWorkspace(const Job& job, const std::vector<ProductShape>& checked,
                                   const std::vector<ProductShape>& timed,
                                   const WorkspaceOf& size_of)
    : size_(MostOf(job, checked, timed, size_of)),
      partials_(job.gpu, std::max<std::size_t>(size_.partials, 16)),
      barriers_(job.gpu, std::max<std::size_t>(size_.barriers, 16)) {
  barriers_.Zero();
}

Workspace ProductWorkspace::view() const {
  Workspace workspace;
  workspace.partials = reinterpret_cast<void*>(partials_.address());
  workspace.partials_size = size_.partials;
  workspace.barriers = reinterpret_cast<void*>(barriers_.address());
  workspace.barriers_size = size_.barriers;
  return workspace;
}

void ProductWorkspace::Report(KernelReport& report) const {
  if (report.cases.empty()) return;
  report.cases.back().trouble += partials_.GuardTrouble("the partial sums");
  report.cases.back().trouble += barriers_.GuardTrouble("the counters");
}

}  // namespace tilewright::gpu_check
