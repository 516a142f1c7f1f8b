#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "console.h"
#include "gemm_words.h"
#include "report.h"
#include "shapes.h"
#include "tilewright/tune_gemm.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// "500ms", "60s", "2m", "1h", or seconds.
Result<double> ParseSeconds(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},   {"s", 1},    {"ms", 1e-3},
                                                            {"m", 60}, {"min", 60}, {"h", 3600}};
  for (const auto& [name, seconds] : kUnits) {
    if (error == std::errc() && unit == name && value >= 0) return value * seconds;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--budget '{}': must be a time such as 500ms, 60s or 2m", text));
}

/// Collects problems; the same one again adds to its weight.
class Problems {
 public:
  void Add(const GemmDesc& desc, double weight) {
    const auto [at, fresh] = index_.try_emplace(KeyOf(desc), list_.size());
    if (fresh) {
      list_.push_back({desc, weight});
    } else {
      list_[at->second].weight += weight;
    }
  }
  const std::vector<TuneProblem>& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> index_;
  std::vector<TuneProblem> list_;
};

/// Passes of a batch size relative to each other, in a use that is mostly one sequence: a prompt in
/// passes of 512 rows, then some hundred tokens one by one.
double PassesOf(std::int32_t rows) {
  if (rows == 1) return 128;
  return rows >= 512 ? 2 : 0.25;
}

/// Batch sizes whose every row also wants logits: several sequences decode at once.
constexpr std::int32_t kMaxDecodeRows = 64;

bool IsMatMul(TensorOp op) {
  return op == TensorOp::kMulMat || op == TensorOp::kMulMatAdd || op == TensorOp::kMulMatSwiGlu;
}

Status AddGraph(Session& session, const DeviceDispatch& dispatch, std::int32_t rows,
                std::int32_t logits_rows, double passes, Problems& problems) {
  Result<const Graph*> graph = session.GraphFor(rows, logits_rows);
  if (!graph) return Fail(graph.error());
  for (const TensorNode& node : (*graph)->nodes()) {
    if (!IsMatMul(node.op)) continue;
    GemmDesc desc = dispatch.ProblemOf(**graph, node);
    desc.pack_b = kPackAny;  // the layout of the weights is what tuning is to decide
    problems.Add(desc, passes);
  }
  return {};
}

/// Every GEMM problem that the model poses. Weights stay as the file has them: nothing is packed.
Status AddModelProblems(const TuneArguments& options, Context& context, Problems& problems) {
  Result<Precision> activations = ParsePrecision(options.model.activations);
  Result<Guarantee> guarantee = ParseGuarantee(options.model.guarantee);
  Result<DataType> kv = ParseKv(options.model.kv);
  Result<FusionSet> fusions = FusionSet::Parse(options.model.fusions);
  if (!activations) return Fail(activations.error());
  if (!guarantee) return Fail(guarantee.error());
  if (!kv) return Fail(kv.error());
  if (!fusions) return Fail(fusions.error());
  std::vector<std::int32_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  if (!options.rows.empty()) {
    Result<std::vector<std::int32_t>> given = ParseIntegers(options.rows, "--m", 1);
    if (!given) return Fail(given.error());
    rows = std::move(*given);
  }
  const std::unique_ptr<DeviceDispatch> dispatch = context.MakeDispatch(*activations, *guarantee);
  ModelOptions model_options;
  model_options.fusions = *fusions;
  model_options.executor = &context.executor();
  model_options.device = &context.device();
  Result<std::unique_ptr<Model>> model = Model::Load(options.model.path, model_options);
  if (!model) return Fail(model.error());
  SessionOptions session_options;
  session_options.kv = *kv;
  session_options.max_rows = *std::max_element(rows.begin(), rows.end());
  session_options.context = session_options.max_rows;
  Result<std::unique_ptr<Session>> session = Session::Create(**model, *dispatch, session_options);
  if (!session) return Fail(session.error());
  for (std::int32_t count : rows) {
    Status status = AddGraph(**session, *dispatch, count, 1, PassesOf(count), problems);
    if (status && count > 1 && count <= kMaxDecodeRows) {
      status = AddGraph(**session, *dispatch, count, count, PassesOf(count), problems);
    }
    if (!status) return status;
  }
  return {};
}

Status AddShapes(const TuneArguments& options, Problems& problems) {
  Result<std::vector<ShapeRow>> shapes = ReadShapes(options.shapes);
  if (!shapes) return Fail(shapes.error());
  Result<std::vector<std::int32_t>> rows =
      ParseIntegers(options.rows.empty() ? "1,16,512" : options.rows, "--m", 1);
  if (!rows) return Fail(rows.error());
  Result<Precision> precision = ParsePrecision(options.model.activations);
  if (!precision) return Fail(precision.error());
  for (const ShapeRow& shape : *shapes) {
    for (std::int32_t m : shape.m > 0 ? std::vector<std::int32_t>{shape.m} : *rows) {
      GemmWords words;
      words.m = fmt::format("{}", m);
      words.n = fmt::format("{}", shape.n);
      words.k = fmt::format("{}", shape.k);
      words.type_b = shape.type.empty() ? options.type : shape.type;
      words.precision = options.model.activations;
      words.guarantee = options.model.guarantee;
      Result<GemmDesc> desc = MakeGemm(words);
      if (!desc) {
        return Fail(desc.error().code, fmt::format("{}: {}", shape.name, desc.error().message));
      }
      problems.Add(*desc, 1);
    }
  }
  return {};
}

Result<Problems> Collect(const TuneArguments& options, Context& context) {
  Problems problems;
  for (const std::string& text : options.gemms) {
    Result<GemmDesc> desc = ParseGemm(text);
    if (!desc) return Fail(desc.error());
    problems.Add(*desc, 1);
  }
  if (!options.shapes.empty()) {
    if (Status status = AddShapes(options, problems); !status) return Fail(status.error());
  }
  if (!options.model.path.empty()) {
    if (Status status = AddModelProblems(options, context, problems); !status) {
      return Fail(status.error());
    }
  }
  return problems;
}

/// The budget goes to what one sequence needs first (batch 1 and the largest), then to the rest.
constexpr double kFirstShare = 0.6;

std::pair<std::vector<TuneProblem>, std::vector<TuneProblem>> Split(const Problems& problems) {
  std::int32_t largest = 1;
  for (const TuneProblem& problem : problems.list()) {
    largest = std::max(largest, BatchOf(problem.desc));
  }
  std::pair<std::vector<TuneProblem>, std::vector<TuneProblem>> split;
  for (const TuneProblem& problem : problems.list()) {
    const std::int32_t batch = BatchOf(problem.desc);
    (batch == 1 || batch == largest ? split.first : split.second).push_back(problem);
  }
  return split;
}

/// Tunes groups of problems one after the other, with one progress bar.
class Session {
 public:
  Session(const TuneArguments& options, Context& context, int total)
      : context_(context), total_(total), bar_("tuning") {
    CpuMeasurerOptions measurer_options;
    measurer_options.policy = context.scope().policy;
    measurer_ = MakeCpuGemmMeasurer(context.executor(), measurer_options);
    tune_.feasible = context.feasible_options();
    tune_.scope = context.scope();
    tune_.tuner.seed = options.seed;
    tune_.remeasure = options.remeasure || context.cache_mode() == CacheMode::kVerify ||
                      context.cache_mode() == CacheMode::kRefresh;
    tune_.cancel = &Interrupted();
    tune_.progress = [this](const TuneProgress& at) { Show(at); };
  }

  /// `budget_seconds` 0: no limit.
  Status Run(std::span<const TuneProblem> problems, double budget_seconds) {
    tune_.budget_seconds = budget_seconds;
    Result<TuneReport> part = TuneGemm(problems, context_.kernels().gemm(), context_.device_spec(),
                                       context_.records(), *measurer_, tune_);
    if (!part) return Fail(part.error());
    done_ += static_cast<int>(problems.size());
    for (TuneRow& row : part->rows) result_.rows.push_back(std::move(row));
    result_.tuned += part->tuned;
    result_.skipped += part->skipped;
    result_.failed += part->failed;
    result_.not_reached += part->not_reached;
    result_.cancelled = part->cancelled;
    result_.out_of_budget = result_.out_of_budget || part->out_of_budget;
    result_.device_seconds += part->device_seconds;
    return {};
  }
  TuneReport& result() { return result_; }

 private:
  void Show(const TuneProgress& at) {
    const double in_group = at.problems > 0 ? at.fraction * at.problems : 0;
    bar_.Show((done_ + in_group) / total_,
              fmt::format("{}/{}  {}  {}", done_ + at.problem + 1, total_,
                          at.desc != nullptr ? ShortGemm(*at.desc) : "", at.best));
  }

  Context& context_;
  int total_;
  int done_ = 0;
  Progress bar_;
  std::unique_ptr<GemmMeasurer> measurer_;
  TuneOptions tune_;
  TuneReport result_;
};

/// A problem that the budget ended before anything was timed: no fault of its own.
bool IsUnfinished(const TuneRow& row) {
  return row.kernel.empty() && row.candidates > 0 && row.timed == 0 && row.quarantined == 0;
}

Result<TuneReport> Measure(const TuneArguments& options, Context& context, const Problems& problems,
                           double budget_seconds) {
  const auto [first, rest] = Split(problems);
  Session session(options, context, static_cast<int>(problems.list().size()));
  const bool limited = budget_seconds > 0;
  if (Status status =
          session.Run(first, rest.empty() ? budget_seconds : kFirstShare * budget_seconds);
      !status) {
    return Fail(status.error());
  }
  const double left = budget_seconds - session.result().device_seconds;
  if (Interrupted() || (limited && left <= 0)) {
    session.result().not_reached += static_cast<int>(rest.size());
  } else if (!rest.empty()) {
    if (Status status = session.Run(rest, limited ? left : 0); !status) return Fail(status.error());
  }
  TuneReport& result = session.result();
  result.cancelled = Interrupted();
  for (TuneRow& row : result.rows) {
    if (!IsUnfinished(row)) continue;
    row.trouble.clear();
    --result.failed;
    ++result.not_reached;
  }
  return std::move(result);
}

void PrintJson(const TuneReport& result) {
  Report report;
  report.Array("rows");
  for (const TuneRow& row : result.rows) {
    if (row.desc.m == 0) continue;  // not reached
    Report line;
    line.Set("problem", KeyOf(row.desc))
        .Set("kernel", row.kernel)
        .Set("spec", row.spec)
        .Set("us", row.us)
        .Set("before", row.before)
        .Set("before_us", row.before_us)
        .Set("skipped", row.skipped)
        .Set("conclusive", row.conclusive)
        .Set("inconclusive", row.inconclusive)
        .Set("candidates", row.candidates)
        .Set("timed", row.timed)
        .Set("quarantined", row.quarantined)
        .Set("trouble", row.trouble);
    if (row.gain.ratio > 0) {
      const double interval[] = {row.gain.low, row.gain.high};
      line.Set("gain", row.gain.ratio).Set("gain_interval", std::span<const double>(interval));
    } else {
      line.SetNull("gain").SetNull("gain_interval");
    }
    report.Append("rows", std::move(line));
  }
  report.Set("tuned", result.tuned)
      .Set("skipped", result.skipped)
      .Set("failed", result.failed)
      .Set("not_reached", result.not_reached)
      .Set("cancelled", result.cancelled)
      .Set("out_of_budget", result.out_of_budget)
      .Set("device_seconds", result.device_seconds);
  Out(report.Text() + "\n");
}

std::string Gain(const TuneRow& row) {
  if (row.skipped) return "known";
  if (!row.conclusive) return "inconclusive";
  if (row.gain.ratio <= 0) return row.before.empty() ? "-" : "same";
  return fmt::format("{:.2f}x ({:.2f} .. {:.2f})", row.gain.ratio, row.gain.low, row.gain.high);
}

/// Why problems ended without a decision, each reason once with how many it met.
std::string WhyInconclusive(const TuneReport& result) {
  std::map<std::string, int> reasons;
  for (const TuneRow& row : result.rows) {
    if (!row.skipped && !row.conclusive && row.timed > 0) ++reasons[row.inconclusive];
  }
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("{} inconclusive: {}; the next tune goes on with {}\n", count, reason,
                        count == 1 ? "it" : "them");
  }
  return text;
}

void PrintTable(const TuneReport& result) {
  Table table({"problem (m x n x k)", "kernel", "launch", "us", "default us", "gain (95 %)"},
              {true, true, true, false, false, false});
  for (const TuneRow& row : result.rows) {
    if (row.kernel.empty()) continue;
    table.Row({ShortGemm(row.desc), row.kernel, row.spec, fmt::format("{:.2f}", row.us),
               row.before_us > 0 ? fmt::format("{:.2f}", row.before_us) : "-", Gain(row)});
  }
  Out(table.Text());
  std::string line = fmt::format("{} problems tuned in {:.1f} s of device time", result.tuned,
                                 result.device_seconds);
  if (result.skipped > 0) line += fmt::format(", {} known already", result.skipped);
  if (result.failed > 0) line += fmt::format(", {} failed", result.failed);
  if (result.not_reached > 0)
    line += fmt::format(", {} not reached (more --budget)", result.not_reached);
  Out(line + "\n" + WhyInconclusive(result));
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int Tune(const TuneArguments& options) {
  if (options.check) {
    Complain("'tune --check' is not built yet in this version");
    return kExitUsage;
  }
  if (!options.report.empty()) {
    Complain("'tune --report' is not built yet in this version");
    return kExitUsage;
  }
  if (options.model.path.empty() && options.gemms.empty() && options.shapes.empty()) {
    return Usage("nothing to tune: give a MODEL, --gemm or --shapes", "tune");
  }
  for (const std::string& text : options.gemms) {
    if (Result<GemmDesc> desc = ParseGemm(text); !desc) {
      return Usage("--gemm: " + desc.error().message, "tune");
    }
  }
  if (!options.rows.empty()) {
    if (auto rows = ParseIntegers(options.rows, "--m", 1); !rows) {
      return Usage(rows.error().message, "tune");
    }
  }
  Result<double> budget = ParseSeconds(options.budget);
  if (!budget) return Usage(budget.error().message, "tune");
  Result<std::unique_ptr<Context>> context = MakeContext(options.common, Calibration::kMissing);
  if (!context) return ExitFor(context.error());
  Result<Problems> problems = Collect(options, **context);
  if (!problems) return ExitFor(problems.error());
  if (!(*context)->records().persistent()) {
    Warn("what is measured now is not kept: the records cannot be written");
  }
  Result<TuneReport> result = Measure(options, **context, *problems, *budget);
  if (!result) return ExitFor(result.error());
  for (const std::string& warning : (*context)->records().warnings()) {
    const auto told = (*context)->warnings();
    if (std::find(told.begin(), told.end(), warning) == told.end()) Warn(warning);
  }
  for (const TuneRow& row : result->rows) {
    if (!row.trouble.empty()) {
      Warn(fmt::format("{}: {}", ShortGemm(row.desc), FirstLine(row.trouble)));
    }
  }
  if (options.common.json) {
    PrintJson(*result);
  } else {
    PrintTable(*result);
  }
  const int flushed = Finish(kExitOk);
  if (result->cancelled) {
    Complain(fmt::format("interrupted; what was measured is kept ({} problems)", result->tuned));
    return ExitInterrupted();
  }
  return result->failed > 0 ? kExitFailed : flushed;
}

}  // namespace tilewright::cli
