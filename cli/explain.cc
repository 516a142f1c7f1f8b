#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "console.h"
#include "explain_report.h"
#include "gemm_words.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// The fields that differ from a plain f32 problem, as tune --gemm takes them.
std::string TuneCommand(const GemmDesc& desc) {
  GemmWords plain;
  plain.m = plain.n = plain.k = "1";
  plain.type_b = "none";
  const Result<GemmDesc> usual = MakeGemm(plain);
  std::vector<std::string> usual_fields;
  std::stringstream usual_key(usual ? KeyOf(*usual) : "");
  for (std::string field; usual_key >> field;) usual_fields.push_back(field);
  std::string text;
  std::stringstream key(KeyOf(desc));
  std::size_t at = 0;
  for (std::string field; key >> field; ++at) {
    if (at >= 3 && at < usual_fields.size() && usual_fields[at] == field) continue;
    text += (text.empty() ? "" : ",") + field;
  }
  return fmt::format("tilewright tune --gemm \"{}\"", text);
}

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
  Result<GemmDesc> desc = MakeGemm(options.gemm);
  if (!desc) return Fail(desc.error());
  look.problem = KeyOf(*desc);
  Result<CheckedGemm> checked = Validate(*desc);
  if (!checked) return Fail(checked.error());

  const Registry& registry = context.kernels().gemm();
  // Records of another machine, as --device names it, are looked for in the same file.
  std::optional<DispatchCache> elsewhere;
  if (!look.here) elsewhere = DispatchCache::Over(context.records(), registry, look.scope);
  const DispatchCache& cache = look.here ? context.cache() : *elsewhere;
  FeasibleOptions feasible = context.feasible_options();
  if (!look.here) feasible.quarantine = &elsewhere->quarantine();
  const GemmCandidates candidates = Feasible(*checked, registry, look.device, feasible);
  Result<GemmChoice> choice =
      Choose(candidates, context.cache_mode() == CacheMode::kRefresh ? nullptr : &cache);
  if (choice) {
    look.choice = Chosen{std::string(choice->kernel().name()), SpecText(choice->spec()),
                         choice->provenance(), choice->source_batch(), choice->why()};
    look.measuring = TuneCommand(*desc);
  } else if (choice.error().code == ErrorCode::kUnsupported) {
    look.no_choice = fmt::format("no kernel can run {}", ShortGemm(*desc));
  } else {
    return Fail(choice.error());
  }
  std::vector<Record> records;
  std::set<Pack> packs;  // every kernel has records of its own layout
  for (const GemmCandidate& candidate : candidates.all()) {
    GemmDesc packed = *desc;
    if (packed.pack_b == kPackAny) packed.pack_b = candidate.kernel->desc().pack_b;
    if (context.cache_mode() == CacheMode::kRefresh) break;
    if (!packs.insert(packed.pack_b).second) continue;
    std::vector<Record> rows = cache.RecordsOf(packed);
    records.insert(records.end(), std::make_move_iterator(rows.begin()),
                   std::make_move_iterator(rows.end()));
  }
  look.rows = Explain(candidates, choice ? &*choice : nullptr, records, look.scope);
  return look;
}

}  // namespace

int ExplainGemm(const ExplainOptions& options) {
  if (Result<GemmDesc> desc = MakeGemm(options.gemm); !desc) {
    return Usage(desc.error().message, "explain gemm");
  }
  Result<std::unique_ptr<Context>> context = MakeContext(options.common);
  if (!context) return ExitFor(context.error());
  Result<Explained> look = Look(options, **context);
  if (!look) return ExitFor(look.error());
  return PrintExplained(*look, options);
}

}  // namespace tilewright::cli
