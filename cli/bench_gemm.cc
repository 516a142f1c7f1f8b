#include <fmt/format.h>

#include <algorithm>

#include "console.h"
#include "gemm_words.h"
#include "launch_times.h"
#include "machine_floor.h"
#include "measuring.h"
#include "model_view.h"
#include "report.h"
#include "shapes.h"
#include "tilewright/tune_gemm.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

struct Row {
  std::string name;
  GemmDesc desc;
  double us = 0, baseline_us = 0, floor_us = 0;
  ModelView model;
  std::string kernel, provenance;
};

std::int64_t WeightBytes(const GemmDesc& d) { return BytesOf(d.type_b, std::int64_t{d.n} * d.k); }

class GemmBench {
 public:
  GemmBench(const BenchGemmOptions& options, Context& context, const Measuring& measuring)
      : options_(options),
        context_(context),
        measurer_(measuring.Make<GemmOp>()),
        floor_(context) {}

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
    // Activations are assumed to be in the caches.
    const Precision precision =
        desc->precision == Precision::kAuto ? BestPrecision(desc->type_b) : desc->precision;
    row.floor_us = floor_.Us(static_cast<double>(WeightBytes(*desc)),
                             LeastWorkOf<GemmOp>(*desc).operations, precision);
    row.model = ModelOf(candidates, choice->spec());
    if (Status timed = Time(candidates, choice->spec(), row); !timed) return Fail(timed.error());
    return row;
  }

  const MachineFloor& floor() const { return floor_; }

 private:
  /// The chosen launch in turn with every launch that the vendor offers: the fastest of those is the
  /// baseline, whatever the model thinks of them.
  Status Time(const GemmCandidates& candidates, const LaunchSpec& chosen, Row& row) {
    std::vector<LaunchSpec> specs = {chosen};
    if (options_.baseline != "none") {
      for (const GemmCandidate& candidate : candidates.all()) {
        if (!candidate.feasible() || candidate.kernel->info().provider != Provider::kVendor)
          continue;
        specs.insert(specs.end(), candidate.specs.begin(), candidate.specs.end());
      }
    }
    Result<std::vector<LaunchTime>> times = TimeInTurn<GemmOp>(*measurer_, specs, options_.repeat);
    if (!times) return Fail(times.error());
    if (!times->front().trouble.empty()) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("{}: {}", chosen.kernel->name(), times->front().trouble));
    }
    row.us = times->front().us;
    for (std::size_t i = 1; i < times->size(); ++i) {
      const LaunchTime& time = (*times)[i];
      if (time.trouble.empty() && (row.baseline_us == 0 || time.us < row.baseline_us))
        row.baseline_us = time.us;
    }
    return {};
  }

  const BenchGemmOptions& options_;
  Context& context_;
  std::unique_ptr<GemmMeasurer> measurer_;
  MachineFloor floor_;
};

void Print(const BenchGemmOptions& options, const Context& context, const GemmBench& bench,
           const std::vector<Row>& rows) {
  Report report;
  report.Set("device", context.device_spec().ClassId())
      .Set("policy", MeasurePolicyName(context.scope().policy))
      .Set("baseline", options.baseline)
      .Set("read_gb_s", bench.floor().read_gb_s())
      .Set("peaks", PeaksReport(bench.floor().peaks()))
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
    line.Set("predicted_us", row.model.us)
        .Set("model_rank", row.model.rank)
        .Set("candidates", row.model.candidates);
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
                                      fmt::format("{:.2f}", row.model.us),
                                      fmt::format("{}/{}", row.model.rank, row.model.candidates)};
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
  Out(fmt::format("weights {}; {}\n", MeasurePolicyName(context.scope().policy),
                  bench.floor().Text()));
}

/// Kernels of a vendor's library are named after it: "gemm.cublaslt".
bool HasVendorKernels(const Context& context, std::string_view library) {
  for (const Kernel* kernel : context.kernels().gemm().kernels()) {
    if (kernel->info().provider == Provider::kVendor &&
        kernel->name().find(library) != std::string_view::npos)
      return true;
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
  if (options.baseline != "none" && !HasVendorKernels(**context, options.baseline)) {
    Complain(fmt::format("--baseline {}: there are no kernels of it on {}; use --baseline none",
                         options.baseline, (*context)->device_name()));
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
