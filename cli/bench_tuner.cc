#include <fmt/format.h>

#include "common.h"
#include "console.h"
#include "problem_words.h"
#include "report.h"
#include "tilewright/matrix.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

Result<Matrix> ReadMatrix(const std::string& path) {
  Result<std::string> text = ReadFile(path);
  if (!text) return Fail(text.error());
  Result<Matrix> matrix = ParseMatrix(*text);
  if (!matrix)
    return Fail(matrix.error().code, fmt::format("{}: {}", path, matrix.error().message));
  return matrix;
}

void SetRegret(Report& report, const Regret& regret) {
  report.Set("mean_regret", regret.mean)
      .Set("p95_regret", regret.p95)
      .Set("max_regret", regret.max);
}

void PrintJson(const ReplayReport& replay) {
  Report report, summary;
  report.Array("rows");
  for (const ReplayRow& row : replay.rows) {
    Report line;
    line.Set("op", row.op).Set("problem", row.problem).Set("candidates", row.candidates);
    SetRegret(line, row.regret);
    line.Set("model_regret", row.model_regret)
        .Set("decided", row.decided)
        .Set("device_seconds", row.device_seconds);
    report.Append("rows", std::move(line));
  }
  SetRegret(summary, replay.regret);
  summary.Set("device_seconds", replay.device_seconds)
      .Set("problems", static_cast<int>(replay.rows.size()));
  report.Set("summary", std::move(summary));
  Out(report.Text() + "\n");
}

std::string Percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

void PrintTable(const ReplayReport& replay) {
  Table table({"problem", "candidates", "mean", "95 %", "most", "model", "decided", "seconds"},
              {true, false, false, false, false, false, false, false});
  for (const ReplayRow& row : replay.rows) {
    table.Row({ShortProblem(row.op, row.problem), fmt::format("{}", row.candidates),
               Percent(row.regret.mean), Percent(row.regret.p95), Percent(row.regret.max),
               Percent(row.model_regret), fmt::format("{:.0f} %", 100 * row.decided),
               fmt::format("{:.3f}", row.device_seconds)});
  }
  Out(table.Text());
  Out(
      fmt::format("regret over all: {} in the mean, 95 % at most {}, {} at worst; {:.1f} s of "
                  "device time for {} problems\n",
                  Percent(replay.regret.mean), Percent(replay.regret.p95),
                  Percent(replay.regret.max), replay.device_seconds, replay.rows.size()));
}

}  // namespace

int BenchTuner(const BenchTunerOptions& options) {
  Matrix all;
  for (const std::string& path : options.matrices) {
    Result<Matrix> matrix = ReadMatrix(path);
    if (!matrix) return ExitFor(matrix.error());
    for (MatrixProblem& problem : matrix->problems) all.problems.push_back(std::move(problem));
  }
  ReplayOptions replay;
  replay.budget_percent = options.budget_percent;
  replay.replicates = options.replicates;
  replay.seed = options.seed;
  const ReplayReport report = ReplayTuner(all, replay);
  if (options.common.json) {
    PrintJson(report);
  } else {
    PrintTable(report);
  }
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
