#include "tune_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "gemm_words.h"
#include "measuring.h"
#include "problem_words.h"
#include "shapes.h"

namespace tilewright::cli {
namespace {

/// Passes of a batch size relative to each other, in a use that is mostly one sequence: a prompt in
/// passes of 512 rows, then some hundred tokens one by one.
double PassesOf(std::int32_t rows) {
  if (rows == 1) return 128;
  return rows >= 512 ? 2 : 0.25;
}

/// Batch sizes whose every row also wants logits: several sequences decode at once.
constexpr std::int32_t kMaxDecodeRows = 64;

/// The operations that --ops names; all where it names none.
bool IsWanted(const TuneArguments& options, std::string_view op) {
  std::stringstream words(options.ops);
  bool any = false;
  for (std::string word; std::getline(words, word, ',');) {
    if (word == op) return true;
    any = any || !word.empty();
  }
  return !any;
}

Status AddGraph(Session& session, const DeviceDispatch& dispatch, const TuneArguments& options,
                std::int32_t rows, std::int32_t logits_rows, TuneProblems& problems) {
  Result<const Graph*> graph = session.GraphFor(rows, logits_rows);
  if (!graph) return Fail(graph.error());
  ForEachOperation([&]<class Op>() {
    if (!IsWanted(options, Op::kName)) return;
    for (const TensorNode& node : (*graph)->nodes()) {
      auto desc = dispatch.ProblemOf<Op>(**graph, node);
      if (!desc) continue;
      // The layout of the weights is what tuning is to decide.
      if constexpr (std::is_same_v<Op, GemmOp>) desc->pack_b = kPackAny;
      problems.of<Op>().Add(*desc, PassesOf(rows));
    }
  });
  return {};
}

/// Every problem that the model poses. Weights stay as the file has them: nothing is packed.
Status AddModelProblems(const TuneArguments& options, GgufFile file, Context& context,
                        TuneProblems& problems) {
  Result<Activations> activations = ParseActivations(options.model.activations, context);
  Result<Guarantee> guarantee = ParseGuarantee(options.model.guarantee);
  Result<DataType> kv = ParseKv(options.model.kv, context);
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
  const std::unique_ptr<DeviceDispatch> dispatch =
      context.MakeDispatch(activations->precision, *guarantee);
  ModelOptions model_options;
  model_options.fusions = *fusions;
  model_options.executor = &context.executor();
  model_options.device = &context.device();
  Result<std::unique_ptr<Model>> model = Model::Load(std::move(file), model_options);
  if (!model) return Fail(model.error());
  SessionOptions session_options = context.DefaultSession();
  session_options.kv = *kv;
  session_options.activations = activations->type;
  session_options.chains = Chains::kOff;  // which have no problems of their own
  session_options.max_rows = *std::max_element(rows.begin(), rows.end());
  // As many positions as a run has: they are part of the problem that attention poses.
  const int context_wanted = options.model.context;
  session_options.context = std::max(
      session_options.max_rows, context_wanted > 0 ? context_wanted : (*model)->config().context);
  Result<std::unique_ptr<Session>> session = Session::Create(**model, *dispatch, session_options);
  if (!session) return Fail(session.error());
  for (std::int32_t count : rows) {
    Status status = AddGraph(**session, *dispatch, options, count, 1, problems);
    if (status && count > 1 && count <= kMaxDecodeRows) {
      status = AddGraph(**session, *dispatch, options, count, count, problems);
    }
    if (!status) return status;
  }
  return {};
}

/// What --gemm and --shapes leave open: as --activations and --guarantee say.
Result<GemmWords> WordsOf(const TuneArguments& options, const Context& context) {
  const std::string& activations = options.model.activations;
  if (context.device_spec().kind == DeviceKind::kCpu) {
    if (auto known = ParseActivations(activations, context); !known) return Fail(known.error());
  } else if (auto known = ParsePrecision(activations); !known) {
    return Fail(known.error());
  }
  GemmWords words = UsualWords(context);
  words.precision = activations;
  words.guarantee = options.model.guarantee;
  return words;
}

Status AddShapes(const TuneArguments& options, const Context& context, TuneProblems& problems) {
  Result<std::vector<ShapeRow>> shapes = ReadShapes(options.shapes);
  if (!shapes) return Fail(shapes.error());
  Result<std::vector<std::int32_t>> rows =
      ParseIntegers(options.rows.empty() ? "1,16,512" : options.rows, "--m", 1);
  if (!rows) return Fail(rows.error());
  Result<GemmWords> usual = WordsOf(options, context);
  if (!usual) return Fail(usual.error());
  for (const ShapeRow& shape : *shapes) {
    for (std::int32_t m : shape.m > 0 ? std::vector<std::int32_t>{shape.m} : *rows) {
      GemmWords words = *usual;
      words.m = fmt::format("{}", m);
      words.n = fmt::format("{}", shape.n);
      words.k = fmt::format("{}", shape.k);
      words.type_b = shape.type.empty() ? options.type : shape.type;
      Result<GemmDesc> desc = MakeGemm(words);
      if (!desc) {
        return Fail(desc.error().code, fmt::format("{}: {}", shape.name, desc.error().message));
      }
      problems.of<GemmOp>().Add(PosedOn(context, *desc), 1);
    }
  }
  return {};
}

Status AddOp(const std::string& text, TuneProblems& problems) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const std::string op = text.substr(0, space), fields = text.substr(space);
  Status status = Fail(ErrorCode::kInvalidArgument,
                       fmt::format("--op '{}': must be an operation ({}) and the fields of a "
                                   "problem, as \"norm rows=8 cols=576\"",
                                   text, OperationNames()));
  ForEachOperation([&]<class Op>() {
    if (Op::kName != op) return;
    const auto desc = ParseProblem<Op>(fields);
    if (desc) problems.of<Op>().Add(*desc, 1);
    status =
        desc ? Status() : Fail(desc.error().code, fmt::format("--op: {}", desc.error().message));
  });
  return status;
}

}  // namespace

Status CheckProblemWords(const TuneArguments& options) {
  TuneProblems unused;
  for (const std::string& text : options.gemms) {
    if (Result<GemmDesc> desc = ParseGemm(text); !desc)
      return Fail(desc.error().code, "--gemm: " + desc.error().message);
  }
  for (const std::string& text : options.problems) {
    if (Status status = AddOp(text, unused); !status) return status;
  }
  std::stringstream words(options.ops);
  for (std::string word; std::getline(words, word, ',');) {
    if (!IsOperation(word)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--ops '{}': must be some of {}", word, OperationNames()));
    }
  }
  if (options.rows.empty()) return {};
  if (auto rows = ParseIntegers(options.rows, "--m", 1); !rows) return Fail(rows.error());
  return {};
}

Result<Asked> Ask(const TuneArguments& options, Calibration calibration) {
  std::optional<GgufFile> file;
  if (!options.model.path.empty()) {
    Result<GgufFile> opened = GgufFile::Open(options.model.path);
    if (!opened) return Fail(opened.error());
    file = std::move(*opened);
  }
  Result<std::unique_ptr<Context>> opened =
      MakeContext(options.common, calibration, nullptr, file ? WeightBytes(*file) : 0);
  if (!opened) return Fail(opened.error());
  Asked asked{std::move(*opened), {}};
  Context& context = *asked.context;
  TuneProblems& problems = asked.problems;
  if (!options.gemms.empty()) {
    Result<GemmWords> usual = WordsOf(options, context);
    if (!usual) return Fail(usual.error());
    for (const std::string& text : options.gemms) {
      Result<GemmDesc> desc = ParseGemm(text, *usual);
      if (!desc) return Fail(desc.error());
      problems.of<GemmOp>().Add(PosedOn(context, *desc), 1);
    }
  }
  for (const std::string& text : options.problems) {
    if (Status status = AddOp(text, problems); !status) return Fail(status.error());
  }
  if (!options.shapes.empty()) {
    if (Status status = AddShapes(options, context, problems); !status) return Fail(status.error());
  }
  if (file) {
    Status status = AddModelProblems(options, std::move(*file), context, problems);
    if (!status) return Fail(status.error());
  }
  return asked;
}

}  // namespace tilewright::cli
