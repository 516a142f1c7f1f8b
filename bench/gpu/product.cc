#include "gpu/product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "core/block_format.h"
#include "core/random.h"
#include "core/text.h"
#include "gpu/cublaslt.h"

namespace tilewright::gpu_check {
namespace {

bool Blocked(DataType type) { return GetTypeInfo(type).block_quantised; }

/// The operand as [rows][k] f64-exact f32 values, whatever its order.
std::vector<float> RowsOfK(const Operand& operand, bool k_contiguous) {
  const std::int64_t rows = k_contiguous ? operand.lines : operand.length;
  const std::int64_t k = k_contiguous ? operand.length : operand.lines;
  std::vector<float> out(static_cast<std::size_t>(rows * k));
  const auto decode = [&](std::int64_t line, float* to) {
    Must(DecodeRow(operand.type, operand.Line(static_cast<int>(line)), operand.length, to),
         "decode");
  };
  if (k_contiguous) {
    ParallelFor(rows, [&](std::int64_t row) { decode(row, out.data() + row * k); });
    return out;
  }
  // Bands of lines, so that a thread's transposed stores stay near each other.
  constexpr std::int64_t kBand = 32;
  ParallelFor((k + kBand - 1) / kBand, [&](std::int64_t band) {
    const std::int64_t first = band * kBand;
    const std::int64_t last = std::min(first + kBand, k);
    std::vector<float> lines(static_cast<std::size_t>(kBand * rows));
    for (std::int64_t line = first; line < last; ++line) {
      decode(line, lines.data() + (line - first) * rows);
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t line = first; line < last; ++line) {
        out[static_cast<std::size_t>(row * k + line)] =
            lines[static_cast<std::size_t>((line - first) * rows + row)];
      }
    }
  });
  return out;
}

/// Sum and sum of magnitudes of x[i] * y[i]; the products are exact in f64.
struct DotResult {
  double sum, magnitude;
};
DotResult Dot(const float* x, const float* y, std::int64_t k) {
  double sums[4] = {}, sizes[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= k; i += 4) {
    for (int j = 0; j < 4; ++j) {
      const double product = double{x[i + j]} * double{y[i + j]};
      sums[j] += product;
      sizes[j] += std::abs(product);
    }
  }
  for (; i < k; ++i) {
    const double product = double{x[i]} * double{y[i]};
    sums[0] += product;
    sizes[0] += std::abs(product);
  }
  return {sums[0] + sums[1] + sums[2] + sums[3], sizes[0] + sizes[1] + sizes[2] + sizes[3]};
}

/// Everything of one problem, on the host and on the GPU.
class Product {
 public:
  Product(const Job& job, const ProductTypes& types, const ProductShape& shape)
      : types_(types),
        shape_(shape),
        a_(types.a_k_contiguous ? Draw(job, types.a, shape.m, shape.k, shape.pad_a, 0)
                                : Draw(job, types.a, shape.k, shape.m, shape.pad_a, 0)),
        b_(types.b_k_contiguous ? Draw(job, types.b, shape.n, shape.k, shape.pad_b, 1)
                                : Draw(job, types.b, shape.k, shape.n, shape.pad_b, 1)),
        ldd_(shape.n + shape.pad_d),
        device_a_(job.gpu, a_.bytes),
        device_d_(job.gpu, static_cast<std::size_t>(shape.m) * BytesOf(types.d, ldd_)) {
    device_b_.push_back(std::make_unique<Guarded>(job.gpu, b_.bytes));
    if (types.c == DataType::kNone) return;
    c_ = RandomOperand(types.c, shape.m, shape.n, {.pad = shape.pad_d, .periodic = job.time},
                       job.seed + 2);
    device_c_.emplace(job.gpu, c_.bytes.size());
    // Where C must not be read it stays NaN.
    if (shape.addend == Addend::kSeparate) device_c_->Upload(c_.bytes);
  }

  /// More copies of B, so that there are `sets` of them.
  void AddSets(const Job& job, int sets) {
    while (static_cast<int>(device_b_.size()) < sets) {
      device_b_.push_back(std::make_unique<Guarded>(job.gpu, b_.bytes));
    }
  }
  std::size_t b_bytes() const { return b_.bytes.size(); }

  ProductView View(int set) const {
    const auto pointer = [](const Guarded& memory, std::size_t skip) {
      return reinterpret_cast<void*>(memory.address() + skip);
    };
    ProductView view{};
    view.a = pointer(device_a_, a_.skip_bytes);
    view.b = pointer(*device_b_[static_cast<std::size_t>(set)], b_.skip_bytes);
    view.d = pointer(device_d_, 0);
    if (device_c_) {
      view.c = pointer(shape_.addend == Addend::kInPlace ? device_d_ : *device_c_, 0);
      view.ldc = ldd_;
    }
    view.lda = a_.length + shape_.pad_a;
    view.ldb = b_.length + (Blocked(types_.b) ? 0 : shape_.pad_b);
    view.ldd = ldd_;
    view.b_line_bytes = static_cast<std::int64_t>(b_.line_bytes);
    view.m = shape_.m;
    view.n = shape_.n;
    view.k = shape_.k;
    view.alpha = shape_.alpha;
    view.beta = Beta();
    return view;
  }

  CaseReport Check(const Job& job, int tile_m, const LaunchProduct& launch) const {
    CaseReport report;
    report.shape = shape_.Name();
    const auto reset = [&] {
      if (shape_.addend == Addend::kInPlace) device_d_.Upload(c_.bytes);
    };
    std::vector<const Guarded*> others{&device_a_, device_b_[0].get()};
    if (device_c_) others.push_back(&*device_c_);
    const std::vector<std::byte> bytes = RunTwice(
        job.gpu, device_d_, others, reset, [&] { launch(View(0)); }, report);
    CheckPadding(bytes, report);
    Comparison comparison = ProductComparison(types_.d, shape_.k);
    Compare(bytes, SampledRows(job.seed, tile_m), comparison, report);
    Finish(comparison, report);
    return report;
  }

  double FewestBytes() const {
    return static_cast<double>(BytesOf(types_.a, std::int64_t{shape_.m} * shape_.k) +
                               BytesOf(types_.b, std::int64_t{shape_.n} * shape_.k) +
                               BytesOf(types_.d, std::int64_t{shape_.m} * shape_.n));
  }

 private:
  Operand Draw(const Job& job, DataType type, int lines, int length, int pad, int number) const {
    return RandomOperand(type, lines, length,
                         {.pad = pad, .skip = shape_.skip, .periodic = job.time},
                         job.seed + static_cast<std::uint64_t>(number));
  }
  float Beta() const { return shape_.addend == Addend::kNone ? 0.0f : 0.5f; }

  /// What lies between the rows of D must be as it was.
  void CheckPadding(const std::vector<std::byte>& bytes, CaseReport& report) const {
    const std::size_t row_bytes = BytesOf(types_.d, ldd_);
    for (int row = 0; row < shape_.m; ++row) {
      for (std::size_t i = BytesOf(types_.d, shape_.n); i < row_bytes; ++i) {
        // C in place has NaN there as well.
        if (bytes[static_cast<std::size_t>(row) * row_bytes + i] == std::byte{0xff}) continue;
        report.trouble = Format("row {}: byte {} beyond column {} was written", row,
                                i - BytesOf(types_.d, shape_.n), shape_.n);
        return;
      }
    }
  }

  void Compare(const std::vector<std::byte>& bytes, const std::vector<int>& rows,
               Comparison& comparison, CaseReport& report) const {
    const std::vector<float> b = RowsOfK(b_, types_.b_k_contiguous);
    const auto k = static_cast<std::size_t>(shape_.k);
    const auto width = static_cast<std::size_t>(shape_.n);
    std::vector<float> a(rows.size() * k);
    for (std::size_t i = 0; i < rows.size(); ++i) RowOfA(rows[i], a.data() + i * k);
    std::vector<DotResult> dots(rows.size() * width);
    ParallelFor(shape_.n, [&](std::int64_t col) {
      const auto at = static_cast<std::size_t>(col);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        dots[i * width + at] = Dot(a.data() + i * k, b.data() + at * k, shape_.k);
      }
    });
    std::vector<double> got(width), c(width);
    const auto decode = [&](const std::byte* row, DataType type, std::vector<double>& out) {
      Must(DecodeRow(type, row, shape_.n, out.data()), "decode");
    };
    const auto row_of_d = [&](int row) {
      return bytes.data() + static_cast<std::size_t>(row) * BytesOf(types_.d, ldd_);
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      decode(row_of_d(rows[i]), types_.d, got);
      if (Beta() != 0) decode(c_.Line(rows[i]), types_.c, c);
      for (std::size_t col = 0; col < width; ++col) {
        const DotResult& dot = dots[i * width + col];
        const double add = Beta() != 0 ? double{Beta()} * c[col] : 0;
        comparison.Add(got[col], double{shape_.alpha} * dot.sum + add,
                       std::abs(double{shape_.alpha}) * dot.magnitude + std::abs(add), rows[i],
                       static_cast<std::int64_t>(col));
      }
    }
    // The rows that were not sampled must at least hold numbers.
    for (int row = 0; row < shape_.m; ++row) {
      decode(row_of_d(row), types_.d, got);
      const auto odd =
          std::find_if(got.begin(), got.end(), [](double value) { return !std::isfinite(value); });
      if (odd == got.end()) continue;
      if (report.trouble.empty()) {
        report.trouble = Format("[{}][{}] is no finite number", row, odd - got.begin());
      }
      return;
    }
  }

  std::vector<int> SampledRows(std::uint64_t seed, int tile_m) const {
    constexpr double kAll = 1 << 28;
    std::vector<int> rows;
    if (static_cast<double>(shape_.m) * shape_.n * shape_.k <= kAll) {
      for (int row = 0; row < shape_.m; ++row) rows.push_back(row);
      return rows;
    }
    rows = {0, tile_m - 1, tile_m, shape_.m / tile_m * tile_m - 1, shape_.m - 1};
    Random random(seed);
    while (rows.size() < 24) {
      rows.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(shape_.m)));
    }
    for (int& row : rows) row = std::clamp(row, 0, shape_.m - 1);
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }

  void RowOfA(int row, float* out) const {
    if (types_.a_k_contiguous) {
      Must(DecodeRow(types_.a, a_.Line(row), shape_.k, out), "decode");
      return;
    }
    const std::size_t at = static_cast<std::size_t>(row) * BytesOf(types_.a, 1);
    for (int k = 0; k < shape_.k; ++k) {
      Must(DecodeRow(types_.a, a_.Line(k) + at, 1, out + k), "decode");
    }
  }

  ProductTypes types_;
  ProductShape shape_;
  Operand a_, b_, c_;
  std::int64_t ldd_;
  Guarded device_a_, device_d_;
  std::vector<std::unique_ptr<Guarded>> device_b_;
  std::optional<Guarded> device_c_;
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

Operand RandomOperand(DataType type, int lines, int length, const OperandLayout& layout,
                      std::uint64_t seed) {
  Operand operand;
  operand.type = type;
  operand.lines = lines;
  operand.length = length;
  const bool blocked = Blocked(type);
  const std::size_t dense_bytes = BytesOf(type, length);
  operand.line_bytes = blocked ? dense_bytes + static_cast<std::size_t>(layout.pad)
                               : BytesOf(type, std::int64_t{length} + layout.pad);
  operand.skip_bytes = blocked ? static_cast<std::size_t>(layout.skip) : BytesOf(type, layout.skip);
  operand.bytes.assign(operand.skip_bytes + static_cast<std::size_t>(lines) * operand.line_bytes,
                       std::byte{0xff});
  const std::vector<std::byte> dense =
      (layout.periodic ? PeriodicBytes : RandomBytes)(type, std::int64_t{lines} * length, 1, seed);
  for (int i = 0; i < lines; ++i) {
    const auto line = static_cast<std::size_t>(i);
    std::memcpy(operand.bytes.data() + operand.skip_bytes + line * operand.line_bytes,
                dense.data() + line * dense_bytes, dense_bytes);
  }
  return operand;
}

void CheckProducts(const Job& job, const ProductTypes& types, int tile_m,
                   const std::vector<ProductShape>& shapes, const LaunchProduct& launch,
                   KernelReport& report) {
  constexpr double kSmall = 1 << 24;
  for (const ProductShape& shape : shapes) {
    if (job.small && static_cast<double>(shape.m) * shape.n * shape.k > kSmall) continue;
    report.cases.push_back(Product(job, types, shape).Check(job, tile_m, launch));
  }
}

void TimeProducts(const Job& job, const ProductTypes& types,
                  const std::vector<ProductShape>& shapes, bool cold, const LaunchProduct& launch,
                  KernelReport& report) {
  for (const ProductShape& shape : shapes) {
    Product product(job, types, shape);
    const int sets = cold ? ColdSets(job.gpu, product.b_bytes()) : 1;
    product.AddSets(job, sets);
    const Replay replay(job.gpu, sets, [&](int set) { launch(product.View(set)); });
    TimeReport time = TimeReplay(replay);
    time.shape = shape.Name();
    time.bytes = product.FewestBytes();
    time.flops = 2.0 * shape.m * shape.n * shape.k;
    time.unit = "bf16";
    if (const auto theirs =
            FastestCublasLt(job.gpu, types, sets, [&](int set) { return product.View(set); })) {
      const Replay other(job.gpu, sets, theirs);
      std::tie(time.beside_us, time.cublaslt_us) = TimeAlternately(replay, other);
    }
    report.times.push_back(time);
  }
}

}  // namespace tilewright::gpu_check
