#include <fmt/format.h>

#include "console.h"
#include "measuring.h"
#include "problem_words.h"
#include "tilewright/matrix.h"
#include "tilewright/whole_file.h"
#include "tune_problems.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// Measures every problem; one that no kernel can run is told and left out.
Result<Matrix> Measure(const BenchRecordOptions& options, Context& context,
                       const TuneProblems& problems) {
  Result<Measuring> measuring =
      Measuring::Start(context, {.seed = options.what.seed}, "bench record");
  if (!measuring) return Fail(measuring.error());
  Matrix matrix;
  matrix.scope = context.scope();
  Progress bar("measuring");
  MatrixOptions how;
  how.feasible = context.feasible_options();
  how.rounds = options.rounds;
  how.tuner.seed = options.what.seed;
  how.cancel = &Interrupted();
  int done = 0;
  Status status;
  ForEachOperation([&]<class Op>() {
    if (problems.of<Op>().list().empty()) return;
    const auto measurer = measuring->Make<Op>();
    for (const TuneProblemOf<Op>& problem : problems.of<Op>().list()) {
      if (!status) return;
      const std::string name = ShortProblem(Op::kName, KeyOf(problem.desc));
      how.progress = [&](double part) { bar.Show((done + part) / problems.size(), name); };
      Result<MatrixProblem> measured = MeasureMatrix<Op>(problem.desc, context.kernels().of<Op>(),
                                                         context.device_spec(), *measurer, how);
      ++done;
      if (measured) {
        matrix.problems.push_back(std::move(*measured));
      } else if (measured.error().code == ErrorCode::kCancelled) {
        status = Fail(measured.error());
      } else {
        Warn(fmt::format("{}: {}", name, measured.error().message));
      }
    }
  });
  if (!status) return Fail(status.error());
  if (matrix.problems.empty()) return Fail(ErrorCode::kUnsupported, "nothing could be measured");
  return matrix;
}

}  // namespace

int BenchRecord(const BenchRecordOptions& options) {
  const TuneArguments& what = options.what;
  if (what.empty())
    return Usage("nothing to measure: give a MODEL, --gemm, --op or --shapes", "bench record");
  if (Status words = CheckProblemWords(what); !words)
    return Usage(words.error().message, "bench record");
  if (Status able = CanWriteWholeFile(options.output); !able) return ExitFor(able.error());
  const Result<Asked> asked = Ask(what);
  if (!asked) return ExitFor(asked.error());
  Result<Matrix> matrix = Measure(options, *asked->context, asked->problems);
  if (!matrix) return ExitFor(matrix.error());
  if (Status written = WriteWholeFile(options.output, FormatMatrix(*matrix)); !written)
    return ExitFor(written.error());
  std::size_t candidates = 0;
  for (const MatrixProblem& problem : matrix->problems) candidates += problem.candidates.size();
  Out(fmt::format("{} candidates of {} problems in {}\n", candidates, matrix->problems.size(),
                  options.output));
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
