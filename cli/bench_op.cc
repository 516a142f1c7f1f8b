#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "gemm_words.h"
#include "launch_times.h"
#include "machine_floor.h"
#include "measuring.h"
#include "model_view.h"
#include "problem_words.h"
#include "report.h"
#include "shapes.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

struct Launch {
  std::string kernel, spec;
  ModelView model;
  LaunchTime time;
  bool again = false;  ///< the time is that of --again
};

/// The fastest first, those that failed last; what was timed again before the others.
bool Before(const Launch& a, const Launch& b) {
  if (a.time.trouble.empty() != b.time.trouble.empty()) return a.time.trouble.empty();
  if (a.again != b.again) return a.again;
  return a.time.us < b.time.us;
}

/// What --again times besides the chosen launch and the first guess.
constexpr std::size_t kFastest = 4;

struct Row {
  std::string name, problem, provenance;
  LeastWork work;
  double floor_us = 0;
  std::size_t chosen = 0, first_guess = 0;  ///< in `launches`
  std::vector<Launch> launches;             ///< those that were timed
};

double PerSecond(double amount, double us) { return us > 0 ? amount / us / 1e6 : 0; }  // tera

/// The precision that bounds the arithmetic of a problem.
template <class Op>
Precision PrecisionOf(const typename Op::Desc& desc) {
  if constexpr (std::is_same_v<Op, GemmOp>) {
    return desc.precision == Precision::kAuto ? BestPrecision(desc.type_b) : desc.precision;
  } else if constexpr (std::is_same_v<Op, attention::Op>) {
    const bool rounds = desc.precision == Precision::kAuto ? desc.type_kv != DataType::kF32
                                                           : desc.precision != Precision::kF32;
    return rounds ? Precision::kBF16 : BestPrecision(desc.type_q);
  } else {
    return Precision::kF32;
  }
}

template <class Op>
class OpBench {
 public:
  using Desc = typename Op::Desc;
  using Spec = typename Op::Spec;

  OpBench(const BenchOpOptions& options, Context& context, const Measuring& measuring,
          MachineFloor& floor)
      : options_(options), context_(context), measurer_(measuring.Make<Op>()), floor_(floor) {}

  Result<Row> Measure(std::string name, const Desc& desc) {
    const Result<Checked<Op>> checked = Validate(desc);
    if (!checked) return Fail(checked.error());
    const Candidates<Op> candidates = Feasible(*checked, context_.kernels().of<Op>(),
                                               context_.device_spec(), context_.feasible_options());
    const Result<Choice<Op>> choice = Choose(candidates, &context_.caches().of<Op>());
    if (!choice) return Fail(choice.error());
    if (Status status = measurer_->Prepare(desc); !status) return Fail(status.error());
    const std::vector<Spec> specs = ToTime(candidates, choice->spec());
    Result<std::vector<LaunchTime>> times = TimeInTurn<Op>(*measurer_, specs, options_.repeat);
    if (!times) return Fail(times.error());

    Row row;
    row.name = std::move(name);
    row.problem = ShortProblem(Op::kName, KeyOf(desc));
    row.provenance = std::string(ProvenanceName(choice->provenance()));
    row.work = LeastWorkOf<Op>(desc, {.positions = options_.positions});
    row.floor_us = floor_.Us(row.work.bytes, row.work.operations, PrecisionOf<Op>(desc));
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i] == choice->spec()) row.chosen = i;
      row.launches.push_back({std::string(specs[i].kernel->name()), SpecText(specs[i]),
                              ModelOf(candidates, specs[i]), std::move((*times)[i])});
      if (row.launches[i].model.rank < row.launches[row.first_guess].model.rank)
        row.first_guess = i;
    }
    const Launch& chosen = row.launches[row.chosen];
    if (!chosen.time.trouble.empty())
      return Fail(ErrorCode::kInternal, fmt::format("{}: {}", chosen.kernel, chosen.time.trouble));
    if (options_.again > 0) {
      if (Status status = TimeAgain(specs, row); !status) return Fail(status.error());
    }
    return row;
  }

 private:
  /// The chosen launch and the model's first guess; with --all every one.
  std::vector<Spec> ToTime(const Candidates<Op>& candidates, const Spec& chosen) const {
    std::vector<Spec> specs = {chosen};
    const Spec* guess = nullptr;
    for (const Candidate<Op>& candidate : candidates.all()) {
      if (!candidate.feasible() || candidate.kernel->info().reference) continue;
      for (const Spec& spec : candidate.specs) {
        if (guess == nullptr || spec.predicted_us < guess->predicted_us) guess = &spec;
        if (options_.all && !(spec == chosen)) specs.push_back(spec);
      }
    }
    if (!options_.all && guess != nullptr && !(*guess == chosen)) specs.push_back(*guess);
    return specs;
  }

  /// The fastest of many medians is so in part by luck: its time is taken anew, beside those that it is compared with.
  Status TimeAgain(const std::vector<Spec>& specs, Row& row) {
    std::vector<std::size_t> order(specs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return Before(row.launches[a], row.launches[b]);
    });
    order.resize(std::min(kFastest, order.size()));
    order.push_back(row.first_guess);
    std::vector<std::size_t> again = {row.chosen};  // first, as TimeInTurn has it
    for (const std::size_t i : order) {
      if (row.launches[i].time.trouble.empty() &&
          std::find(again.begin(), again.end(), i) == again.end())
        again.push_back(i);
    }
    std::vector<Spec> few;
    for (const std::size_t i : again) few.push_back(specs[i]);
    Result<std::vector<LaunchTime>> times = TimeInTurn<Op>(*measurer_, few, options_.again);
    if (!times) return Fail(times.error());
    for (std::size_t i = 0; i < again.size(); ++i) {
      row.launches[again[i]].time = std::move((*times)[i]);
      row.launches[again[i]].again = true;
    }
    return {};
  }

  const BenchOpOptions& options_;
  Context& context_;
  std::unique_ptr<Measurer<Op>> measurer_;
  MachineFloor& floor_;
};

Report ReportRow(const Row& row, bool all) {
  const Launch& chosen = row.launches[row.chosen];
  Report line;
  line.Set("name", row.name)
      .Set("shape", row.problem)
      .Set("us_median", chosen.time.us)
      .Set("floor_us", row.floor_us)
      .Set("bytes", row.work.bytes)
      .Set("operations", row.work.operations)
      .Set("tb_s", PerSecond(row.work.bytes, chosen.time.us))
      .Set("tflop_s", PerSecond(row.work.operations, chosen.time.us))
      .Set("kernel", chosen.kernel)
      .Set("spec", chosen.spec)
      .Set("provenance", row.provenance)
      .Set("predicted_us", chosen.model.us)
      .Set("model_rank", chosen.model.rank)
      .Set("candidates", chosen.model.candidates)
      .Set("first_guess_us", row.launches[row.first_guess].time.us);
  if (!all) return line;
  line.Array("launches");
  for (const Launch& launch : row.launches) {
    Report timed;
    timed.Set("kernel", launch.kernel).Set("spec", launch.spec);
    if (launch.time.trouble.empty()) {
      timed.Set("us_median", launch.time.us);
    } else {
      timed.SetNull("us_median").Set("trouble", launch.time.trouble);
    }
    timed.Set("predicted_us", launch.model.us).Set("model_rank", launch.model.rank);
    if (launch.again) timed.Set("again", true);
    line.Append("launches", std::move(timed));
  }
  return line;
}

void PrintRows(const std::vector<Row>& rows) {
  Table table({"problem", "us", "floor", "of floor", "TB/s", "Tflop/s", "model", "rank",
               "first guess", "kernel", "launch", "by"},
              {true, false, false, false, false, false, false, false, false, true, true, true});
  for (const Row& row : rows) {
    const Launch& chosen = row.launches[row.chosen];
    const double us = chosen.time.us, guess = row.launches[row.first_guess].time.us;
    table.Row(
        {row.name.empty() ? row.problem : row.name, fmt::format("{:.2f}", us),
         fmt::format("{:.2f}", row.floor_us), fmt::format("{:.0f} %", 100 * row.floor_us / us),
         fmt::format("{:.3f}", PerSecond(row.work.bytes, us)),
         row.work.operations > 0 ? fmt::format("{:.1f}", PerSecond(row.work.operations, us)) : "-",
         fmt::format("{:.2f}", chosen.model.us),
         fmt::format("{}/{}", chosen.model.rank, chosen.model.candidates),
         guess > 0 ? fmt::format("{:.2f}", guess) : "-", chosen.kernel, chosen.spec,
         row.provenance});
  }
  Out(table.Text());
}

/// Every launch of one problem.
void PrintLaunches(const Row& row) {
  std::vector<const Launch*> order;
  for (const Launch& launch : row.launches) order.push_back(&launch);
  std::stable_sort(order.begin(), order.end(),
                   [](const Launch* a, const Launch* b) { return Before(*a, *b); });
  Table table({"us", "of floor", "model", "rank", "kernel", "launch"},
              {false, false, false, false, true, true});
  for (const Launch* launch : order) {
    const bool timed = launch->time.trouble.empty();
    table.Row({timed ? fmt::format("{:.2f}", launch->time.us) : "-",
               timed ? fmt::format("{:.0f} %", 100 * row.floor_us / launch->time.us) : "-",
               fmt::format("{:.2f}", launch->model.us), fmt::format("{}", launch->model.rank),
               launch->kernel, timed ? launch->spec : launch->time.trouble});
  }
  Out(fmt::format("\n{}\n{}", row.problem, table.Text()));
}

/// The problem that the fields describe; a product with the usual types of the device, as bench gemm
/// has them. `context` may be nullptr, to check the words alone.
template <class Op>
Result<typename Op::Desc> ParseFields(std::string fields, const Context* context) {
  if constexpr (std::is_same_v<Op, GemmOp>) {
    std::replace(fields.begin(), fields.end(), ' ', ',');
    Result<GemmDesc> desc =
        ParseGemm(fields, context == nullptr ? GemmWords{} : UsualWords(*context));
    if (desc && context != nullptr) return PosedOn(*context, *desc);
    return desc;
  } else {
    return ParseProblem<Op>(fields);
  }
}

/// Whether the fields are those of a problem.
template <class Op>
Status CheckFields(const std::string& fields) {
  const auto desc = ParseFields<Op>(fields, nullptr);
  return desc ? Status() : Fail(desc.error());
}

/// Name and fields of every problem: those of the command line, then those of --shapes.
template <class Op>
Result<std::vector<ProblemRow>> AllProblems(const BenchOpOptions& options) {
  std::vector<ProblemRow> problems;
  for (const std::string& fields : options.problems) problems.push_back({"", fields});
  if (!options.shapes.empty()) {
    Result<std::vector<ProblemRow>> read = ReadProblems(options.shapes, &CheckFields<Op>);
    if (!read) return Fail(read.error());
    for (ProblemRow& row : *read) problems.push_back(std::move(row));
  }
  return problems;
}

template <class Op>
int BenchOne(const BenchOpOptions& options) {
  const std::string verb = "bench op " + options.op;
  for (const std::string& fields : options.problems) {
    if (Status good = CheckFields<Op>(fields); !good) return Usage(good.error().message, verb);
  }
  const Result<std::vector<ProblemRow>> problems = AllProblems<Op>(options);
  if (!problems) return ExitFor(problems.error());
  if (problems->empty()) return Usage("give a problem, or --shapes and a file", verb);
  Result<std::unique_ptr<Context>> context = MakeContext(options.common);
  if (!context) return ExitFor(context.error());
  std::vector<typename Op::Desc> descs;
  for (const ProblemRow& problem : *problems)
    descs.push_back(ParseFields<Op>(problem.fields, context->get()).value());
  const MeasurePolicy policy = (*context)->scope().policy;
  Result<Measuring> measuring = Measuring::Start(**context, {.positions = options.positions}, verb);
  if (!measuring) return ExitFor(measuring.error());
  MachineFloor floor(**context);
  OpBench<Op> bench(options, **context, *measuring, floor);
  std::vector<Row> rows;
  {
    Progress bar("measuring");
    for (std::size_t i = 0; i < descs.size(); ++i) {
      const std::string& name = (*problems)[i].name;
      bar.Show(static_cast<double>(i) / static_cast<double>(descs.size()), name);
      Result<Row> row = bench.Measure(name, descs[i]);
      if (!row) {
        return ExitFor(
            {row.error().code,
             fmt::format("{}: {}", ShortProblem(Op::kName, KeyOf(descs[i])), row.error().message)});
      }
      rows.push_back(std::move(*row));
    }
  }
  if (options.common.json) {
    Report report;
    report.Set("device", (*context)->device_spec().ClassId())
        .Set("policy", MeasurePolicyName(policy))
        .Set("read_gb_s", floor.read_gb_s())
        .Set("peaks", PeaksReport(floor.peaks()))
        .Array("rows");
    for (const Row& row : rows) report.Append("rows", ReportRow(row, options.all));
    Out(report.Text() + "\n");
    return Finish(kExitOk);
  }
  PrintRows(rows);
  Out(fmt::format("weights, tables and caches {}; {}\n", MeasurePolicyName(policy), floor.Text()));
  for (const Row& row : rows) {
    if (options.all) PrintLaunches(row);
  }
  return Finish(kExitOk);
}

}  // namespace

int BenchOp(const BenchOpOptions& options) {
  int exit_code = kExitUsage;
  ForEachOperation([&]<class Op>() {
    if (Op::kName == options.op) exit_code = BenchOne<Op>(options);
  });
  return exit_code;
}

}  // namespace tilewright::cli
