#include "tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "console.h"
#include "problem_words.h"
#include "report.h"

namespace tilewright::cli {
namespace {

/// What tuning gained over the launches that would have run without it, of the problems that were decided.
struct Gains {
  int decided = 0, faster = 0;
  double mean = 1, most = 1;  ///< geometric mean of those that are faster, and the greatest
};
Gains GainsOf(const TuneReport& result) {
  Gains gains;
  double logarithms = 0;
  for (const TuneRow& row : result.rows) {
    if (row.skipped || row.only || !row.conclusive) continue;
    ++gains.decided;
    if (row.gain.ratio <= 1) continue;
    ++gains.faster;
    logarithms += std::log(row.gain.ratio);
    gains.most = std::max(gains.most, row.gain.ratio);
  }
  if (gains.faster > 0) gains.mean = std::exp(logarithms / gains.faster);
  return gains;
}

}  // namespace

void PrintTuneJson(const TuneReport& result, std::uint64_t seed) {
  Report report;
  report.Array("rows");
  for (const TuneRow& row : result.rows) {
    Report line;
    line.Set("op", row.op)
        .Set("problem", row.problem)
        .Set("kernel", row.kernel)
        .Set("spec", row.spec)
        .Set("us", row.us)
        .Set("before", row.before)
        .Set("before_us", row.before_us)
        .Set("skipped", row.skipped)
        .Set("only", row.only)
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
  const Gains gains = GainsOf(result);
  report.Set("tuned", result.tuned)
      .Set("decided", gains.decided)
      .Set("faster", gains.faster)
      .Set("gain_mean", gains.mean)
      .Set("gain_most", gains.most)
      .Set("skipped", result.skipped)
      .Set("only", result.only)
      .Set("failed", result.failed)
      .Set("not_reached", result.not_reached)
      .Set("cancelled", result.cancelled)
      .Set("out_of_budget", result.out_of_budget)
      .Set("device_seconds", result.device_seconds)
      .Set("seed", static_cast<std::int64_t>(seed));
  Out(report.Text() + "\n");
}

std::string GainText(const TuneRow& row) {
  if (row.skipped) return "known";
  if (!row.conclusive) return "inconclusive";
  if (row.gain.ratio <= 0) return row.before.empty() ? "-" : "same";
  return fmt::format("{:.2f}x ({:.2f} .. {:.2f})", row.gain.ratio, row.gain.low, row.gain.high);
}

std::vector<std::string> WhyInconclusive(const TuneReport& result) {
  std::map<std::string, int> reasons;
  for (const TuneRow& row : result.rows) {
    if (row.undecided()) ++reasons[row.inconclusive];
  }
  std::vector<std::string> lines;
  for (const auto& [reason, count] : reasons) {
    lines.push_back(fmt::format("{} inconclusive: {}; the next tune goes on with {}", count, reason,
                                count == 1 ? "it" : "them"));
  }
  return lines;
}

std::string GainsLine(const TuneReport& result) {
  const Gains gains = GainsOf(result);
  if (gains.decided == 0) return "";
  const std::string decided =
      fmt::format("{} {} decided, ", gains.decided, gains.decided == 1 ? "problem" : "problems");
  if (gains.faster == 0) return decided + "none faster by another launch than before";
  return decided + fmt::format(
                       "{} faster by another launch than before: {:.2f}x in the "
                       "geometric mean, up to {:.2f}x",
                       gains.faster, gains.mean, gains.most);
}

std::string TotalsLine(const TuneReport& result) {
  std::string line = fmt::format("{} problems tuned in {:.1f} s of device time", result.tuned,
                                 result.device_seconds);
  if (result.skipped > 0) line += fmt::format(", {} known already", result.skipped);
  if (result.only > 0) line += fmt::format(", {} have one candidate", result.only);
  if (result.failed > 0) line += fmt::format(", {} failed", result.failed);
  if (result.not_reached > 0)
    line += fmt::format(", {} not reached (more --budget)", result.not_reached);
  return line;
}

void PrintTuneTable(const TuneReport& result) {
  Table table({"problem", "kernel", "launch", "us", "default us", "gain (95 %)"},
              {true, true, true, false, false, false});
  for (const TuneRow& row : result.rows) {
    if (row.kernel.empty() || row.only) continue;
    table.Row({ShortProblem(row.op, row.problem), row.kernel, row.spec,
               fmt::format("{:.2f}", row.us),
               row.before_us > 0 ? fmt::format("{:.2f}", row.before_us) : "-", GainText(row)});
  }
  Out(table.Text() + TotalsLine(result) + "\n");
  if (const std::string gains = GainsLine(result); !gains.empty()) Out(gains + "\n");
  for (const std::string& line : WhyInconclusive(result)) Out(line + "\n");
}

}  // namespace tilewright::cli
