// rmsnorm against float64.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/block_format.h"
#include "core/text.h"
#include "gpu/runners.h"
#include "ops/elementwise/elementwise.h"
#include "ops/norm/cuda/rmsnorm_launch.h"
#include "tilewright/cuda/rmsnorm_params.h"

namespace tilewright::gpu_check {
namespace {

struct Shape {
  int rows, width;
  int pad = 0;            ///< elements between rows, a different number in each tensor
  bool in_place = false;  ///< out is in, sum is residual
  double scale = 1;       ///< of the inputs: small ones make epsilon count

  std::string Name() const {
    std::string name = Format("{}x{}", rows, width);
    if (pad > 0) name += Format(" pad {}", pad);
    if (in_place) name += " in place";
    if (scale != 1) name += Format(" scale {}", scale);
    return name;
  }
};

constexpr float kEpsilon = 1e-5f;

/// Rows of `stride` elements of which `width` are random and the others NaN.
std::vector<std::byte> Rows(DataType type, const Shape& shape, int stride, std::uint64_t seed,
                            bool periodic) {
  const std::int64_t count = std::int64_t{shape.rows} * shape.width;
  std::vector<std::byte> dense =
      (periodic ? PeriodicBytes : RandomBytes)(type, count, shape.scale, seed);
  if (stride == shape.width) return dense;
  const std::size_t row_bytes = BytesOf(type, shape.width);
  std::vector<std::byte> bytes(BytesOf(type, std::int64_t{shape.rows} * stride), std::byte{0xff});
  for (int row = 0; row < shape.rows; ++row) {
    std::copy_n(
        dense.begin() + static_cast<std::ptrdiff_t>(row * row_bytes), row_bytes,
        bytes.begin() + static_cast<std::ptrdiff_t>(BytesOf(type, std::int64_t{row} * stride)));
  }
  return bytes;
}

class Norm {
 public:
  Norm(const Job& job, const Shape& shape)
      : spec_(job.kernel.spec()),
        shape_(shape),
        adds_(spec_.epilogue == SpecEpilogue::kAdd),
        in_stride_(shape.width + shape.pad),
        sum_stride_(shape.width + 2 * shape.pad),
        in_(Rows(spec_.type_a, shape, in_stride_, job.seed, job.time)),
        weight_(RandomBytes(spec_.type_b, shape.width, 1, job.seed + 1)),
        device_in_(job.gpu, in_),
        device_weight_(job.gpu, weight_),
        device_out_(job.gpu, BytesOf(spec_.type_d, std::int64_t{shape.rows} * in_stride_)) {
    if (!adds_) return;
    residual_ = Rows(spec_.type_c, shape, sum_stride_, job.seed + 2, job.time);
    device_residual_.emplace(job.gpu, residual_);
    device_sum_.emplace(job.gpu, residual_.size());
  }

  void Launch(const LoadedKernel& kernel) const {
    const auto at = [](const Guarded& memory) { return reinterpret_cast<void*>(memory.address()); };
    AddNormArgs args;
    args.norm.out = View(at(device_out_), spec_.type_d, in_stride_);
    args.norm.in =
        View(shape_.in_place ? at(device_out_) : at(device_in_), spec_.type_a, in_stride_);
    args.norm.weight = Contiguous(at(device_weight_), spec_.type_b, {shape_.width, 1, 1, 1});
    args.norm.epsilon = kEpsilon;
    if (adds_) {
      args.sum = View(at(*device_sum_), spec_.type_c, sum_stride_);
      args.residual = View(shape_.in_place ? at(*device_sum_) : at(*device_residual_), spec_.type_c,
                           sum_stride_);
    }
    kernel.Launch(RmsNormLaunch(spec_, args));
  }

  CaseReport Check(const Job& job) const {
    CaseReport report;
    report.shape = shape_.Name();
    std::vector<const Guarded*> others{&device_in_, &device_weight_};
    if (adds_) others.insert(others.end(), {&*device_residual_, &*device_sum_});
    const auto reset = [&] {
      if (adds_) device_sum_->Poison();
      if (!shape_.in_place) return;
      device_out_.Upload(in_);
      if (adds_) device_sum_->Upload(residual_);
    };
    const std::vector<std::byte> out = RunTwice(
        job.gpu, device_out_, others, reset, [&] { Launch(job.kernel); }, report);
    if (adds_) {
      CompareSum(device_sum_->Download(), report);
    }
    CompareOut(out, report);
    return report;
  }

  double FewestBytes() const {
    const std::int64_t count = std::int64_t{shape_.rows} * shape_.width;
    return static_cast<double>(BytesOf(spec_.type_a, count) + BytesOf(spec_.type_d, count) +
                               (adds_ ? 2 * BytesOf(spec_.type_c, count) : 0));
  }

 private:
  /// [width, rows] of memory of the GPU or the host.
  TensorView View(const void* data, DataType type, std::int64_t stride) const {
    return {const_cast<void*>(data), {shape_.width, shape_.rows, 1, 1}, {1, stride, 0, 0}, type};
  }

  /// in + residual by the oracle of the addition, rounded to its type; dense.
  std::vector<std::byte> Sum() const {
    std::vector<std::byte> sum(BytesOf(spec_.type_c, std::int64_t{shape_.rows} * shape_.width));
    const elementwise::Args add{.function = elementwise::Function::kAdd,
                                .a = View(in_.data(), spec_.type_a, in_stride_),
                                .b = View(residual_.data(), spec_.type_c, sum_stride_),
                                .out = View(sum.data(), spec_.type_c, shape_.width)};
    Must(elementwise::Reference(add), "the oracle of the addition");
    return sum;
  }

  /// The sum is a number of its type: its bits are determined.
  void CompareSum(const std::vector<std::byte>& got, CaseReport& report) const {
    const std::vector<std::byte> want = Sum();
    const std::size_t dense = BytesOf(spec_.type_c, shape_.width);
    for (int row = 0; row < shape_.rows; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const std::size_t from = BytesOf(spec_.type_c, std::int64_t{row} * sum_stride_);
      if (!std::equal(want.begin() + static_cast<std::ptrdiff_t>(at * dense),
                      want.begin() + static_cast<std::ptrdiff_t>((at + 1) * dense),
                      got.begin() + static_cast<std::ptrdiff_t>(from))) {
        report.Blame(Format("row {}: in + residual has other bits", row));
        return;
      }
      CheckPadding(spec_.type_c, got, row, sum_stride_, "sum", report);
    }
  }

  /// `out` against the oracle of the norm, of the sum where there is one.
  void CompareOut(const std::vector<std::byte>& out, CaseReport& report) const {
    const std::vector<std::byte> sum = adds_ ? Sum() : std::vector<std::byte>();
    std::vector<double> want(static_cast<std::size_t>(shape_.rows) *
                             static_cast<std::size_t>(shape_.width));
    const norm::Args norm{.in = adds_ ? View(sum.data(), spec_.type_c, shape_.width)
                                      : View(in_.data(), spec_.type_a, in_stride_),
                          .weight = Contiguous(const_cast<std::byte*>(weight_.data()), spec_.type_b,
                                               {shape_.width, 1, 1, 1}),
                          .out = View(want.data(), DataType::kF64, shape_.width),
                          .epsilon = kEpsilon};
    Must(norm::Reference(norm), "the oracle of the norm");
    const double growth = std::sqrt(static_cast<double>(shape_.width)) * 0x1p-23 + 0x1p-21;
    Comparison comparison(spec_.type_d, growth);
    std::vector<double> got(static_cast<std::size_t>(shape_.width));
    for (int row = 0; row < shape_.rows; ++row) {
      Must(DecodeRow(spec_.type_d,
                     out.data() + BytesOf(spec_.type_d, std::int64_t{row} * in_stride_),
                     shape_.width, got.data()),
           "decode");
      const double* wanted = want.data() + std::int64_t{row} * shape_.width;
      for (std::size_t i = 0; i < got.size(); ++i) {
        comparison.Add(got[i], wanted[i], std::abs(wanted[i]), row, static_cast<std::int64_t>(i));
      }
      CheckPadding(spec_.type_d, out, row, in_stride_, "out", report);
    }
    Finish(comparison, report);
  }

  void CheckPadding(DataType type, const std::vector<std::byte>& bytes, int row, int stride,
                    const char* what, CaseReport& report) const {
    const std::size_t start = BytesOf(type, std::int64_t{row} * stride);
    for (std::size_t i = BytesOf(type, shape_.width); i < BytesOf(type, stride); ++i) {
      if (bytes[start + i] == std::byte{0xff}) continue;
      report.Blame(Format("{} row {}: written beyond its {} elements", what, row, shape_.width));
      return;
    }
  }

  const KernelSpec& spec_;
  Shape shape_;
  bool adds_;
  int in_stride_, sum_stride_;
  std::vector<std::byte> in_, weight_, residual_;
  Guarded device_in_, device_weight_, device_out_;
  std::optional<Guarded> device_residual_, device_sum_;
};

}  // namespace

void RunRmsNorm(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  const bool f32 = spec.type_a == DataType::kF32;
  const int capacity = cuda::RmsNormCapacity(spec.warps, spec.params[0], f32);
  if (job.check) {
    std::vector<Shape> shapes{{1, 1},
                              {3, 17},
                              {5, 128},
                              {7, 576},
                              {300, capacity},
                              {2, capacity - 8},
                              {2, capacity / 2 + 8},
                              {3, capacity + 8},
                              {2, 3 * capacity + 16},
                              {2, 3 * capacity + 13},
                              {.rows = 9, .width = capacity, .pad = 8},
                              {.rows = 9, .width = capacity - 3, .pad = 3},
                              {.rows = 4, .width = 576, .scale = 1e-3},
                              {.rows = 4, .width = 4096, .scale = 100},
                              {.rows = 1000, .width = 64}};
    if (spec.type_a == spec.type_d) {
      shapes.push_back({.rows = 11, .width = capacity, .in_place = true});
      shapes.push_back({.rows = 11, .width = capacity + 24, .pad = 8, .in_place = true});
      shapes.push_back({.rows = 11, .width = 333, .pad = 1, .in_place = true});
    }
    for (const Shape& shape : shapes) report.cases.push_back(Norm(job, shape).Check(job));
  }
  if (!job.time) return;
  // Rows of the width it is made for: one, and as many as are well beyond the L2.
  const int many = static_cast<int>((std::int64_t{256} << 20) / capacity / (f32 ? 4 : 2));
  for (const int rows : {1, many}) {
    const Norm norm(job, {rows, capacity});
    TimeReport time = TimeLaunches(job.gpu, 1, [&](int) { norm.Launch(job.kernel); });
    time.shape = Format("{}x{}", rows, capacity);
    time.bytes = norm.FewestBytes();
    report.times.push_back(time);
  }
}

}  // namespace tilewright::gpu_check
