#include <fmt/format.h>

#include "console.h"
#include "explain_report.h"
#include "gemm_words.h"

namespace tilewright::cli {
namespace {

template <class Op>
Result<Explained> Look(const ExplainOptions& options, Context& context) {
  Explained look;
  look.device = context.device_spec();
  look.scope = context.scope();
  if (!options.device_spec.empty()) {
    Result<DeviceSpec> device = ReadDeviceSpec(options.device_spec);
    if (!device) return Fail(device.error());
    look.device = std::move(*device);
    if (options.common.threads > 0) look.device.cores = options.common.threads;
    look.scope.device = look.device.ClassId();
    look.here = false;
  }
  Result<typename Op::Desc> desc = ParseProblem<Op>(options.problem);
  if (!desc) return Fail(desc.error());
  look.problem = KeyOf(*desc);
  const Result<Checked<Op>> checked = Validate(*desc);
  if (!checked) return Fail(checked.error());

  std::vector<Record> records;
  Records::Filter filter;
  filter.op = std::string(Op::kName);
  if (context.cache_mode() != CacheMode::kRefresh) records = context.records().Load(filter);
  Quarantine quarantine;
  AddToQuarantine<Op>(quarantine, records, look.scope);
  FeasibleOptions feasible = context.feasible_options();
  feasible.quarantine = &quarantine;
  const OpRegistry<Op>& registry = context.kernels().of<Op>();
  const auto tuned = BuildTuned<Op>(records, registry, look.scope);
  const Candidates<Op> candidates = Feasible(*checked, registry, look.device, feasible);
  const Result<Choice<Op>> choice = Choose(candidates, tuned.get());
  if (choice) {
    look.choice = Chosen{std::string(choice->kernel().name()), SpecText(choice->spec()),
                         choice->provenance(), choice->source_batch(), choice->why()};
  } else if (choice.error().code == ErrorCode::kUnsupported) {
    look.no_choice = fmt::format("no kernel can run {} {}", Op::kName, look.problem);
  } else {
    return Fail(choice.error());
  }
  look.rows = Explain(candidates, choice ? &*choice : nullptr, records, look.scope);
  return look;
}

}  // namespace

int ExplainOp(const ExplainOptions& options) {
  Result<std::unique_ptr<Context>> context = MakeContext(options.common);
  if (!context) return ExitFor(context.error());
  std::optional<Result<Explained>> look;
  std::optional<Error> usage;
  ForEachOperation([&]<class Op>() {
    if constexpr (!std::is_same_v<Op, GemmOp>) {
      if (Op::kName != options.op) return;
      if (const auto desc = ParseProblem<Op>(options.problem); !desc) usage = desc.error();
      if (!usage) look = Look<Op>(options, **context);
    }
  });
  if (usage) return Usage(usage->message, "explain " + options.op);
  if (!*look) return ExitFor(look->error());
  return PrintExplained(**look, options);
}

}  // namespace tilewright::cli
