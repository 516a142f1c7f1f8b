#include <fmt/format.h>

#include <memory>
#include <optional>

#include "console.h"
#include "device_kernels.h"
#include "explain_report.h"
#include "gemm_words.h"
#include "measuring.h"
#include "problem_words.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// The command that measures a problem.
std::string TuneCommand(const GemmDesc& desc) {
  GemmWords plain;
  plain.m = plain.n = plain.k = "1";
  plain.type_b = "none";
  const Result<GemmDesc> usual = MakeGemm(plain);
  return fmt::format("tilewright tune --gemm \"{}\"",
                     FieldsThatDiffer(KeyOf(desc), usual ? KeyOf(*usual) : "", 3, ","));
}
template <class Op>
std::string TuneCommand(const typename Op::Desc& desc) {
  if constexpr (std::is_same_v<Op, GemmOp>) {
    return TuneCommand(desc);
  } else {
    return fmt::format("tilewright tune --op \"{} {}\"", Op::kName,
                       FieldsThatDiffer(KeyOf(desc), KeyOf(typename Op::Desc{}), 1, " "));
  }
}

/// What the records say about the device in question. Those of another device (--device-spec) are
/// looked up in the same file.
struct Known {
  Known(Context& context, const Kernels& kernels, const Explained& look) {
    if (!look.here) elsewhere = DispatchCaches::Over(context.records(), kernels, look.scope);
    caches = look.here ? &context.caches() : elsewhere.get();
  }
  std::unique_ptr<const DispatchCaches> elsewhere;
  const DispatchCaches* caches = nullptr;
};

Status SetDevice(const ExplainOptions& options, const Context& context, Explained& look) {
  look.device = context.device_spec();
  look.scope = context.scope();
  if (options.device_spec.empty()) return {};
  Result<DeviceSpec> device = ReadDeviceSpec(options.device_spec);
  if (!device) return Fail(device.error());
  look.device = std::move(*device);
  if (options.common.threads > 0) look.device.cores = options.common.threads;
  look.scope.device = look.device.ClassId();
  look.here = false;
  return {};
}

/// The other policy, if records of it decide this problem; else "".
template <class Op>
std::string PolicyThatMeasured(const Candidates<Op>& candidates, Records& records,
                               const OpRegistry<Op>& kernels, RecordScope scope) {
  const bool warm = scope.policy == MeasurePolicy::kWarm;
  scope.policy = warm ? MeasurePolicy::kCold : MeasurePolicy::kWarm;
  const auto cache = DispatchCacheOf<Op>::Over(records, kernels, scope);
  const Result<Choice<Op>> choice = Choose(candidates, &cache);
  const bool measured = choice && choice->provenance() == Provenance::kMeasured;
  return measured ? std::string(MeasurePolicyName(scope.policy)) : "";
}

template <class Op>
Result<Explained> Look(const ExplainOptions& options, Context& context, typename Op::Desc desc) {
  Explained look;
  if (Status status = SetDevice(options, context, look); !status) return Fail(status.error());
  if constexpr (std::is_same_v<Op, GemmOp>) {
    desc = PosedOn(look.device, desc);
  }
  const Result<DeviceKernels> kernels =
      look.here ? DeviceKernels(context.kernels())
                : DeviceKernels::For(look.device, context, options.common);
  if (!kernels) return Fail(kernels.error());
  look.problem = KeyOf(desc);
  Result<Checked<Op>> checked = Validate(desc);
  if (!checked) return Fail(checked.error());

  const Known known(context, **kernels, look);
  const DispatchCacheOf<Op>& cache = known.caches->template of<Op>();
  const bool times_count = context.cache_mode() != CacheMode::kRefresh;
  FeasibleOptions feasible = context.feasible_options();
  feasible.quarantine = &known.caches->quarantine();
  feasible.partials_bytes = PartialsLimit(look.device);
  const Candidates<Op> candidates =
      Feasible(*checked, (**kernels).template of<Op>(), look.device, feasible);
  Result<Choice<Op>> choice = Choose(candidates, times_count ? &cache : nullptr);
  if (choice) {
    look.choice = Chosen{std::string(choice->kernel().name()), SpecText(choice->spec()),
                         choice->provenance(), choice->source_batch(), choice->why()};
    look.measuring = TuneCommand<Op>(desc);
    if (look.scope.policy == MeasurePolicy::kWarm) look.measuring += " --policy warm";
    if (times_count && look.choice->provenance != Provenance::kMeasured)
      look.other_policy = PolicyThatMeasured<Op>(candidates, context.records(),
                                                 (**kernels).template of<Op>(), look.scope);
  } else if (choice.error().code == ErrorCode::kUnsupported) {
    look.no_choice = fmt::format("no kernel can run {}", ShortProblem(Op::kName, look.problem));
  } else {
    return Fail(choice.error());
  }
  std::vector<Record> records;
  if (times_count) records = cache.RecordsOf(candidates);
  look.rows = Explain(candidates, choice ? &*choice : nullptr, records, look.scope);
  return look;
}

}  // namespace

int ExplainGemm(const ExplainOptions& options) {
  Result<GemmDesc> desc = MakeGemm(options.gemm);
  if (!desc) return Usage(desc.error().message, "explain gemm");
  Result<std::unique_ptr<Context>> context = MakeContext(options.common);
  if (!context) return ExitFor(context.error());
  Result<Explained> look = Look<GemmOp>(options, **context, *desc);
  if (!look) return ExitFor(look.error());
  return PrintExplained(*look, options);
}

int ExplainOp(const ExplainOptions& options) {
  int exit_code = kExitUsage;
  ForEachOperation([&]<class Op>() {
    if (Op::kName != options.op) return;
    const auto explain = [&]() -> int {
      const auto desc = ParseProblem<Op>(options.problem);
      if (!desc) return Usage(desc.error().message, "explain " + options.op);
      Result<std::unique_ptr<Context>> context = MakeContext(options.common);
      if (!context) return ExitFor(context.error());
      Result<Explained> look = Look<Op>(options, **context, *desc);
      if (!look) return ExitFor(look.error());
      return PrintExplained(*look, options);
    };
    exit_code = explain();
  });
  return exit_code;
}

}  // namespace tilewright::cli
