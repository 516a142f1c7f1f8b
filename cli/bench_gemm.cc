#include <fmt/format.h>

#include <algorithm>

#include "console.h"
#include "gemm_words.h"
#include "measuring.h"
#include "peak.h"
#include "report.h"
#include "shapes.h"
#include "tilewright/tune_gemm.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

struct Row {
  std::string name;
  GemmDesc desc;
  double us = 0, baseline_us = 0, floor_us = 0, predicted_us = 0;
  int rank = 1, candidates = 0;  ///< of the chosen one by the model's times
  std::string kernel, provenance;
};

std::int64_t WeightBytes(const GemmDesc& d) { return BytesOf(d.type_b, std::int64_t{d.n} * d.k); }

/// The time needed to read the weights once, or for the arithmetic if that takes longer.
/// Activations are assumed to be in the caches.
double FloorUs(const GemmDesc& d, double read_gb_s, const PeakRate& peak) {
  const double bytes = static_cast<double>(WeightBytes(d));
  const double ops = 2.0 * d.m * d.n * d.k;
  return std::max(bytes / (read_gb_s * 1e3), ops / (peak.giga_ops * 1e3));
}

class GemmBench {
 public:
  GemmBench(const BenchGemmOptions& options, Context& context, const Measuring& measuring)
      : options_(options), context_(context), measurer_(measuring.Make<GemmOp>()) {
    const DeviceSpec& spec = context.device_spec();
    if (spec.kind == DeviceKind::kCuda) {
      // Weights are decoded and multiplied on the tensor cores, in blocks of codes or not.
      read_gb_s_ = spec.read_gb_s;
      peaks_.fill({spec.bf16_gflop_s, "tensor cores"});
      peaks_[static_cast<std::size_t>(Precision::kF32)] = {spec.f32_gflop_s, "fma"};
      return;
    }
    read_gb_s_ = MeasureReadBandwidth(context.executor());
    for (Precision p : {Precision::kI8, Precision::kBF16, Precision::kF32}) {
      peaks_[static_cast<std::size_t>(p)] = BestPeak(spec, context.executor(), p);
    }
  }

  Result<Row> Measure(const ShapeRow& shape, std::int32_t m) {
    GemmWords words = UsualWords(context_);
    words.m = fmt::format("{}", m);
    words.n = fmt::format("{}", shape.n);
    words.k = fmt::format("{}", shape.k);
    words.type_b = shape.type.empty() ? options_.type : shape.type;
    words.precision = options_.precision;
    Result<GemmDesc> desc = MakeGemm(words);
    if (!desc) return Fail(desc.error());
    *desc = PosedOn(context_, *desc);
    Result<CheckedGemm> checked = Validate(*desc);
    if (!checked) return Fail(checked.error());
    const GemmCandidates candidates = Feasible(*checked, context_.kernels().gemm(),
                                               context_.device_spec(), context_.feasible_options());
    Result<GemmChoice> choice = Choose(candidates, &context_.cache());
    if (!choice) return Fail(choice.error());
    if (Status status = measurer_->Prepare(*desc); !status) return Fail(status.error());

    Row row;
    row.name = shape.name;
    row.desc = *desc;
    row.kernel = std::string(choice->kernel().name());
    row.provenance = std::string(ProvenanceName(choice->provenance()));
    row.floor_us = FloorUs(*desc, read_gb_s_, PeakFor(*desc));
    DescribeModel(candidates, choice->spec(), row);
    const LaunchSpec* vendor = options_.baseline == "none" ? nullptr : Vendor(candidates);
    Result<double> us = Time(choice->spec(), vendor, row.baseline_us);
    if (!us) return Fail(us.error());
    row.us = *us;
    return row;
  }

  double read_gb_s() const { return read_gb_s_; }
  const PeakRate& peak(Precision p) const { return peaks_[static_cast<std::size_t>(p)]; }

 private:
  const PeakRate& PeakFor(const GemmDesc& d) const {
    Precision p = d.precision;
    if (p == Precision::kAuto) {
      p = GetTypeInfo(d.type_b).block_quantised ? Precision::kI8
          : d.type_b == DataType::kBF16         ? Precision::kBF16
                                                : Precision::kF32;
    }
    return peak(p);
  }

  /// What the model says of the chosen launch, and where that puts it among all.
  static void DescribeModel(const GemmCandidates& candidates, const LaunchSpec& chosen, Row& row) {
    for (const GemmCandidate& candidate : candidates.all()) {
      if (!candidate.feasible()) continue;
      for (const LaunchSpec& spec : candidate.specs) {
        if (spec == chosen) row.predicted_us = spec.predicted_us;
      }
    }
    for (const GemmCandidate& candidate : candidates.all()) {
      if (!candidate.feasible() || candidate.kernel->info().reference) continue;
      for (const LaunchSpec& spec : candidate.specs) {
        ++row.candidates;
        if (spec.predicted_us < row.predicted_us) ++row.rank;
      }
    }
  }

  /// The vendor's best launch according to the model.
  static const LaunchSpec* Vendor(const GemmCandidates& candidates) {
    const LaunchSpec* best = nullptr;
    for (const GemmCandidate& candidate : candidates.all()) {
      if (candidate.kernel->info().provider != Provider::kVendor) continue;
      for (const LaunchSpec& spec : candidate.specs) {
        if (best == nullptr || spec.predicted_us < best->predicted_us) best = &spec;
      }
    }
    return best;
  }

  /// Samples of the two alternate, so that clock changes affect both.
  Result<double> Time(const LaunchSpec& spec, const LaunchSpec* baseline, double& baseline_us) {
    std::vector<double> ours, theirs;
    const auto sample = [&](const LaunchSpec& s, std::vector<double>& times, int reps) -> Status {
      const Tuner::Outcome outcome = measurer_->Time(s, reps);
      if (outcome.verdict != Verdict::kOk) {
        return Fail(ErrorCode::kInternal,
                    fmt::format("{}: {}", s.kernel->name(), outcome.evidence));
      }
      times.push_back(outcome.us);
      return {};
    };
    const auto reps_for = [&](const LaunchSpec& s) -> Result<int> {
      std::vector<double> warm;
      for (int i = 0; i < 2; ++i) {
        if (Status status = sample(s, warm, 1); !status) return Fail(status.error());
      }
      return std::clamp(static_cast<int>(2000 / std::max(warm.back(), 0.01)), 1, 10000);
    };
    Result<int> reps = reps_for(spec);
    if (!reps) return Fail(reps.error());
    int baseline_reps = 1;
    if (baseline != nullptr) {
      Result<int> count = reps_for(*baseline);
      if (!count) return Fail(count.error());
      baseline_reps = *count;
    }
    for (int i = 0; i < options_.repeat; ++i) {
      if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
      if (Status status = sample(spec, ours, *reps); !status) return Fail(status.error());
      if (baseline == nullptr) continue;
      if (Status s = sample(*baseline, theirs, baseline_reps); !s) return Fail(s.error());
    }
    baseline_us = Median(theirs);
    return Median(ours);
  }

  const BenchGemmOptions& options_;
  Context& context_;
  std::unique_ptr<GemmMeasurer> measurer_;
  double read_gb_s_ = 0;
  std::array<PeakRate, 4> peaks_;
};

void Print(const BenchGemmOptions& options, const Context& context, const GemmBench& bench,
           const std::vector<Row>& rows) {
  Report report;
  report.Set("device", context.device_spec().ClassId())
      .Set("policy", MeasurePolicyName(context.scope().policy))
      .Set("baseline", options.baseline)
      .Set("read_gb_s", bench.read_gb_s())
      .Array("rows");
  const bool baseline = options.baseline != "none";
  Table table(
      baseline ? std::vector<std::string>{"name", "m", "n", "k", "type", "us", "floor", "of floor",
                                          "model", "rank", options.baseline, "gain", "kernel", "by"}
               : std::vector<std::string>{"name", "m", "n", "k", "type", "us", "floor", "of floor",
                                          "model", "rank", "kernel", "by"},
      {true, false, false, false, true, false, false, false, false, false, !baseline, !baseline,
       true, true});
  for (const Row& row : rows) {
    const GemmDesc& d = row.desc;
    Report line;
    line.Set("name", row.name).Set("m", d.m).Set("n", d.n).Set("k", d.k);
    line.Set("type", DataTypeName(d.type_b)).Set("weight_bytes", WeightBytes(d));
    line.Set("us_median", row.us);
    if (row.baseline_us > 0) {
      line.Set("baseline_us_median", row.baseline_us);
    } else {
      line.SetNull("baseline_us_median");
    }
    line.Set("predicted_us", row.predicted_us)
        .Set("model_rank", row.rank)
        .Set("candidates", row.candidates);
    line.Set("floor_us", row.floor_us).Set("kernel", row.kernel).Set("provenance", row.provenance);
    report.Append("rows", std::move(line));
    std::vector<std::string> cells = {row.name,
                                      fmt::format("{}", d.m),
                                      fmt::format("{}", d.n),
                                      fmt::format("{}", d.k),
                                      std::string(DataTypeName(d.type_b)),
                                      fmt::format("{:.2f}", row.us),
                                      fmt::format("{:.2f}", row.floor_us),
                                      fmt::format("{:.0f} %", 100 * row.floor_us / row.us),
                                      fmt::format("{:.2f}", row.predicted_us),
                                      fmt::format("{}/{}", row.rank, row.candidates)};
    if (baseline) {
      cells.push_back(row.baseline_us > 0 ? fmt::format("{:.2f}", row.baseline_us) : "-");
      cells.push_back(row.baseline_us > 0 ? fmt::format("{:.2f}x", row.baseline_us / row.us) : "-");
    }
    cells.push_back(row.kernel);
    cells.push_back(row.provenance);
    table.Row(std::move(cells));
  }
  if (options.common.json) {
    Out(report.Text() + "\n");
    return;
  }
  Out(table.Text());
  if (context.device_spec().kind == DeviceKind::kCuda) {
    Out(fmt::format("weights cold; floor: {:.0f} GB/s read, bf16 {:.0f} TFLOP/s\n",
                    bench.read_gb_s(), bench.peak(Precision::kBF16).giga_ops / 1e3));
    return;
  }
  Out(fmt::format("weights cold; floor: {:.1f} GB/s read, int8 {:.0f} Gop/s, f32 {:.0f} GFLOP/s\n",
                  bench.read_gb_s(), bench.peak(Precision::kI8).giga_ops,
                  bench.peak(Precision::kF32).giga_ops));
}

bool HasVendorKernels(const Context& context) {
  for (const Kernel* kernel : context.kernels().gemm().kernels()) {
    if (kernel->info().provider == Provider::kVendor) return true;
  }
  return false;
}

}  // namespace

int BenchGemm(const BenchGemmOptions& options) {
  Result<std::vector<ShapeRow>> shapes = ReadShapes(options.shapes);
  if (!shapes) return ExitFor(shapes.error());
  Result<std::vector<std::int32_t>> rows_of = ParseIntegers(options.rows, "--m", 1);
  if (!rows_of) return Usage(rows_of.error().message, "bench gemm");
  Result<std::unique_ptr<Context>> context = MakeContext(options.common);
  if (!context) return ExitFor(context.error());
  if (options.baseline == "cublaslt" ||
      (options.baseline == "onednn" && !HasVendorKernels(**context))) {
    Complain(fmt::format("--baseline {}: is not built in this version; use --baseline none",
                         options.baseline));
    return kExitUsage;
  }
  Result<Measuring> measuring = Measuring::Start(**context, {}, "bench gemm");
  if (!measuring) return ExitFor(measuring.error());
  GemmBench bench(options, **context, *measuring);
  std::vector<Row> rows;
  {
    Progress bar("measuring");
    std::size_t at = 0;
    for (const ShapeRow& shape : *shapes) {
      bar.Show(static_cast<double>(at++) / static_cast<double>(shapes->size()), shape.name);
      for (std::int32_t m : shape.m > 0 ? std::vector<std::int32_t>{shape.m} : *rows_of) {
        Result<Row> row = bench.Measure(shape, m);
        if (!row) {
          return ExitFor(
              {row.error().code, fmt::format("{}: {}", shape.name, row.error().message)});
        }
        rows.push_back(std::move(*row));
      }
    }
  }
  Print(options, **context, bench, rows);
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
