#include "tune_html.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "html.h"
#include "problem_words.h"
#include "tune_report.h"

namespace tilewright::cli {
namespace {

std::string Asked(const TuneArguments& options) {
  std::string text = options.model.path;
  const auto add = [&text](std::string_view option, const std::string& value) {
    if (value.empty()) return;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", option, value);
  };
  if (!options.model.path.empty()) add("operations ", options.ops);
  for (const std::string& gemm : options.gemms) add("gemm ", gemm);
  for (const std::string& problem : options.problems) add("", problem);
  add("", options.shapes);
  add("m ", options.rows);
  return text;
}

/// Who decided, and whether anything was measured for it.
std::string_view DecidedBy(const TuneRow& row) {
  if (row.only) return "only candidate";
  if (row.skipped) return "earlier records";
  if (row.conclusive) return "measured";
  if (!row.trouble.empty()) return "failed";
  return row.timed > 0 ? "unfinished" : "not reached";
}

/// Gains as bars from 1x on a common logarithmic scale, with their intervals.
class GainBars {
 public:
  explicit GainBars(const TuneReport& result) {
    for (const TuneRow& row : result.rows) {
      if (row.gain.ratio <= 0 || !(row.gain.low > 0) || !std::isfinite(row.gain.high)) continue;
      least_ = std::min(least_, row.gain.low), most_ = std::max(most_, row.gain.high);
    }
  }
  std::string Of(const TuneRow& row) const {
    const Tuner::Gain& gain = row.gain;
    if (gain.ratio <= 0) return "";
    const double one = At(1), end = At(gain.ratio);
    return fmt::format(
        R"(<svg width="{0}" height="16" role="img" aria-label="{1:.2f}x">)"
        R"(<rect class="bar" x="{2:.1f}" y="3" width="{3:.1f}" height="10"/>)"
        R"(<path class="mark" d="M{4:.1f} 8H{5:.1f}M{4:.1f} 5v6M{5:.1f} 5v6M{6:.1f} 0v16"/></svg>)",
        kWidth, gain.ratio, std::min(one, end), std::abs(end - one), At(gain.low), At(gain.high),
        one);
  }

 private:
  static constexpr int kWidth = 140, kMargin = 2;

  double At(double ratio) const {
    const double part =
        std::log(std::clamp(ratio, least_, most_) / least_) / std::log(most_ / least_);
    return kMargin + part * (kWidth - 2 * kMargin);
  }

  double least_ = 0.97, most_ = 1.1;  // the scale shows at least these
};

std::string GainCell(const TuneRow& row) {
  const bool raced = !row.only && (row.skipped || row.timed > 0);
  return raced ? EscapeHtml(GainText(row)) : "-";
}

std::string Us(double us) { return us > 0 ? fmt::format("{:.2f}", us) : "-"; }

}  // namespace

std::string CodeCell(std::string_view text) {
  return text.empty() ? "-" : fmt::format("<code>{}</code>", EscapeHtml(text));
}

std::string ProblemCell(std::string_view op, const std::string& problem) {
  return fmt::format("<span title=\"{} {}\">{}</span>", EscapeHtml(op), EscapeHtml(problem),
                     EscapeHtml(ShortProblem(op, problem)));
}

std::vector<std::pair<std::string, std::string>> PageFacts(const TuneArguments& options,
                                                           const Context& context) {
  const RecordScope& scope = context.scope();
  std::vector<std::pair<std::string, std::string>> facts = {
      {"problems of", Asked(options)},
      {"device", scope.device},
      {"weights come from", scope.policy == MeasurePolicy::kCold ? "memory" : "the caches"},
      {"version", fmt::format("tilewright {}", Version())},
      {"date", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
  };
  if (!scope.libraries.empty()) facts.insert(facts.begin() + 2, {"libraries", scope.libraries});
  return facts;
}

std::string TuneHtml(const TuneReport& result, const TuneArguments& options,
                     const Context& context) {
  HtmlPage page("Tilewright: tuning");
  auto facts = PageFacts(options, context);
  facts.emplace_back("budget", options.budget == "0" ? "no limit" : options.budget);
  facts.emplace_back("seed", fmt::format("{}", options.seed));
  page.Facts(facts);
  page.Paragraph(TotalsLine(result));
  if (const std::string gains = GainsLine(result); !gains.empty()) page.Paragraph(gains);
  if (result.cancelled) page.Paragraph("The tuning was interrupted.");
  if (const auto reasons = WhyInconclusive(result); !reasons.empty()) {
    page.Heading("Not decided");
    for (const std::string& reason : reasons) page.Paragraph(reason);
  }
  page.Heading("Problems");
  const GainBars bars(result);
  std::vector<std::vector<std::string>> rows;
  for (const TuneRow& row : result.rows) {
    std::string trouble = row.trouble.empty() ? row.inconclusive : row.trouble;
    rows.push_back({ProblemCell(row.op, row.problem), CodeCell(row.kernel), CodeCell(row.spec),
                    Us(row.us), CodeCell(row.before), Us(row.before_us), GainCell(row),
                    bars.Of(row), std::string(DecidedBy(row)), fmt::format("{}", row.candidates),
                    fmt::format("{}", row.timed), fmt::format("{}", row.quarantined),
                    EscapeHtml(trouble)});
  }
  page.Table({{"problem"},
              {"kernel"},
              {"launch"},
              {"us", true},
              {"default"},
              {"default us", true},
              {"gain (95 %)", true},
              {""},
              {"by"},
              {"candidates", true},
              {"timed", true},
              {"quarantined", true},
              {"trouble"}},
             rows);
  return page.Text();
}

}  // namespace tilewright::cli
