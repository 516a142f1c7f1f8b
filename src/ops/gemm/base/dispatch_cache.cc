#include "tilewright/dispatch_cache.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <shared_mutex>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "core/text.h"
#include "engine/sealed_json.h"
#include "ops/gemm/base/family_table.h"
#include "ops/gemm/base/problem_group.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {

using nlohmann::json;

namespace {

constexpr std::string_view kFormat = "tilewright.dispatch_cache";
constexpr int kSchema = 1;

bool IsTime(float us) { return std::isfinite(us) && us > 0; }

// Limits of what an entry may hold, the same for what is inserted and what is read.
bool InRange(std::int64_t swizzle, std::int64_t splits, double measured_us) {
  return swizzle >= 0 && swizzle <= 30 && splits >= 1 && splits <= 4096 && measured_us >= 0 &&
         measured_us <= static_cast<double>(std::numeric_limits<float>::max());
}

std::string HeaderLine(const std::string& device) {
  return Seal(json{{"format", kFormat}, {"schema", kSchema}, {"device", device}});
}

}  // namespace

struct DispatchCache::Impl {
  std::string device;
  MeasurePolicy policy = MeasurePolicy::kCold;
  std::unordered_map<std::string_view, Kernel*> by_name;  // views into the kernels' own names
  FamilyTable table;
  std::size_t entries = 0;
  std::function<std::vector<Record>(const GemmDesc&)> read;  // of a family; none: all is here
  std::function<DispatchCache(std::vector<Record>)> build;
  Quarantine quarantine;
  mutable std::shared_mutex reading;  // only with `read`: guards table and entries
  std::set<std::string> aside;        // sealed lines that mean nothing here, kept for whom they do
  ImportReport report;

  bool Owns(const Kernel* kernel) const {
    if (kernel == nullptr) return false;
    const auto found = by_name.find(kernel->name());
    return found != by_name.end() && found->second == kernel;
  }

  // Calls `use` with the family of `desc`, nullptr for none, reading it if it was not yet.
  template <class Use>
  auto WithFamily(const GemmDesc& desc, const Use& use) {
    if (!read) return use(table.Find(desc));
    {
      const std::shared_lock lock(reading);
      if (const Family* family = table.Find(desc)) return use(family);
    }
    const std::unique_lock lock(reading);
    if (table.Find(desc) == nullptr) Read(desc);
    return use(table.Find(desc));
  }
  // A family without records is noted as well, empty.
  void Read(const GemmDesc& desc) {
    table.FindOrAdd(desc);
    build(read(desc)).ForEach([&](const GemmDesc& found, const LaunchSpec& spec) {
      if (FamilyTable::KeyFor(found) == FamilyTable::KeyFor(desc)) Insert(found, spec, {});
    });
  }

  enum class Inserted {
    kNew,       ///< nothing stood
    kReplaced,  ///< what stood has less evidence
    kSame,      ///< it stands already
    kEqual,     ///< as good as what stands, or stood
    kWorse
  };
  Inserted Insert(const GemmDesc& desc, const LaunchSpec& spec, std::string extra) {
    const std::int32_t batch = BatchOf(desc);
    Family& family = table.FindOrAdd(desc);
    const std::size_t i = family.LowerBound(batch);
    if (i == family.batches.size() || family.batches[i] != batch) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      family.batches.insert(family.batches.begin() + at, batch);
      family.specs.insert(family.specs.begin() + at, spec);
      family.extra.insert(family.extra.begin() + at, std::move(extra));
      ++entries;
      return Inserted::kNew;
    }
    LaunchSpec& standing = family.specs[i];
    const auto evidence = [](const LaunchSpec& s) {
      return IsTime(s.measured_us) ? s.measured_us : std::numeric_limits<float>::infinity();
    };
    if (evidence(spec) > evidence(standing)) return Inserted::kWorse;
    const bool better = evidence(spec) < evidence(standing);
    // Everything that a line holds takes part, so that any order of lines ends with the same one.
    const auto rank = [](const LaunchSpec& s, const std::string& more) {
      return std::tuple(s.kernel->name(), s.swizzle, s.splits, s.config, s.predicted_us,
                        std::string_view(more));
    };
    const auto mine = rank(spec, extra), theirs = rank(standing, family.extra[i]);
    if (!better && mine == theirs) return Inserted::kSame;
    if (better || mine < theirs) {
      standing = spec;
      family.extra[i] = std::move(extra);
    }
    return better ? Inserted::kReplaced : Inserted::kEqual;
  }

  enum class Line {
    kHeader,
    kResolved,
    kUnknownKernel,
    kStale,
    kInfeasible,
    kForeign,
    kCorrupt,
    kWorse
  };
  // Lines of the import at hand that a problem owes what stands for it to: they turn worse when a
  // faster one comes. Problems by key.
  using Standing = std::map<std::string, std::vector<int>>;
  Line Take(const std::string& text, int number, Standing& standing, std::vector<int>& overtaken);
  std::string EntryLine(const GemmDesc& desc, const LaunchSpec& spec,
                        const std::string& extra) const;
};

DispatchCache::DispatchCache(std::vector<Kernel*> kernels, std::string device, MeasurePolicy policy)
    : impl_(std::make_unique<Impl>()) {
  impl_->device = std::move(device);
  impl_->policy = policy;
  for (Kernel* kernel : kernels) {
    if (kernel != nullptr) impl_->by_name.try_emplace(kernel->name(), kernel);
  }
}
DispatchCache::~DispatchCache() = default;
DispatchCache::DispatchCache(DispatchCache&&) noexcept = default;
DispatchCache& DispatchCache::operator=(DispatchCache&&) noexcept = default;

std::optional<LaunchSpec> DispatchCache::Find(const GemmDesc& desc) const {
  return impl_->WithFamily(desc, [&](const Family* family) -> std::optional<LaunchSpec> {
    if (family == nullptr) return std::nullopt;
    const std::int32_t batch = BatchOf(desc);
    const std::size_t i = family->LowerBound(batch);
    if (i == family->batches.size() || family->batches[i] != batch) return std::nullopt;
    return family->specs[i];
  });
}

std::optional<DispatchCache::Hit> DispatchCache::LowerBoundHit(const GemmDesc& desc) const {
  return impl_->WithFamily(desc, [&](const Family* family) -> std::optional<Hit> {
    if (family == nullptr) return std::nullopt;
    const std::int32_t batch = BatchOf(desc);
    const std::size_t i = family->LowerBound(batch);
    if (i == family->batches.size()) return std::nullopt;
    const Hit hit{family->specs[i], family->batches[i]};
    if (hit.batch != batch && hit.spec.kernel->IsFeasible(desc)) return std::nullopt;
    return hit;
  });
}

std::optional<DispatchCache::Hit> DispatchCache::FloorBoundHit(const GemmDesc& desc) const {
  return impl_->WithFamily(desc, [&](const Family* family) -> std::optional<Hit> {
    if (family == nullptr) return std::nullopt;
    const std::int32_t batch = BatchOf(desc);
    std::size_t i = family->LowerBound(batch);
    const bool exact = i < family->batches.size() && family->batches[i] == batch;
    if (!exact && i == 0) return std::nullopt;
    if (!exact) --i;
    const Hit hit{family->specs[i], family->batches[i]};
    if (!exact && hit.spec.kernel->IsFeasible(desc)) return std::nullopt;
    return hit;
  });
}

std::optional<LaunchSpec> DispatchCache::LowerBound(const GemmDesc& desc) const {
  const auto hit = LowerBoundHit(desc);
  if (!hit) return std::nullopt;
  return hit->spec;
}

std::optional<LaunchSpec> DispatchCache::FloorBound(const GemmDesc& desc) const {
  const auto hit = FloorBoundHit(desc);
  if (!hit) return std::nullopt;
  return hit->spec;
}

bool DispatchCache::Insert(const GemmDesc& desc, const LaunchSpec& spec) {
  if (!impl_->Owns(spec.kernel) || !InRange(spec.swizzle, spec.splits, spec.measured_us))
    return false;
  if (spec.kernel->ParseConfig(spec.kernel->ConfigText(spec.config)) != spec.config) return false;
  if (!Validate(desc) || spec.kernel->IsFeasible(desc)) return false;
  LaunchSpec entry = spec;
  if (!IsTime(entry.predicted_us)) entry.predicted_us = 0;
  // Unlike an import, which knows no order, an insertion comes after what stands.
  if (const auto standing = Find(desc);
      standing && (!IsTime(spec.measured_us) ||
                   (IsTime(standing->measured_us) && standing->measured_us <= spec.measured_us))) {
    return false;
  }
  impl_->Insert(desc, entry, {});
  return true;
}

bool DispatchCache::Erase(const GemmDesc& desc) {
  Family* family = impl_->table.FindMutable(desc);
  if (family == nullptr) return false;
  const std::size_t i = family->LowerBound(BatchOf(desc));
  if (i == family->batches.size() || family->batches[i] != BatchOf(desc)) return false;
  const auto at = static_cast<std::ptrdiff_t>(i);
  family->batches.erase(family->batches.begin() + at);
  family->specs.erase(family->specs.begin() + at);
  family->extra.erase(family->extra.begin() + at);
  --impl_->entries;
  return true;
}

DispatchCache DispatchCache::Over(const Records& records, const Registry& registry,
                                  const RecordScope& scope) {
  const auto kernels = registry.kernels();
  DispatchCache cache(std::vector<Kernel*>(kernels.begin(), kernels.end()), scope.device,
                      scope.policy);
  const auto index =
      std::make_shared<const Records::Index>(records.MakeIndex("gemm", scope, &GroupOfProblem));
  const std::vector<Record> failures = records.LoadFailures(*index);
  cache.impl_->quarantine = BuildQuarantine(failures, scope);
  cache.impl_->read = [&records, index](const GemmDesc& desc) {
    return records.LoadGroup(*index, GroupOfProblem(KeyOf(desc)));
  };
  cache.impl_->build = [&registry, scope, failures](std::vector<Record> rows) {
    rows.insert(rows.end(), failures.begin(), failures.end());
    return BuildCache(rows, registry, scope);
  };
  return cache;
}

const Quarantine& DispatchCache::quarantine() const { return impl_->quarantine; }

std::vector<Record> DispatchCache::RecordsOf(const GemmDesc& desc) const {
  return impl_->read ? impl_->read(desc) : std::vector<Record>();
}

std::size_t DispatchCache::size() const { return impl_->entries; }
const ImportReport& DispatchCache::last_import() const { return impl_->report; }

void DispatchCache::ForEach(
    const std::function<void(const GemmDesc&, const LaunchSpec&)>& visit) const {
  std::vector<const Family*> families;
  for (const Family& family : impl_->table.families()) families.push_back(&family);
  std::sort(families.begin(), families.end(),
            [](const Family* x, const Family* y) { return x->key < y->key; });
  for (const Family* family : families) {
    for (std::size_t i = 0; i < family->batches.size(); ++i) {
      GemmDesc desc = family->key;
      SetBatch(desc, family->batches[i]);
      visit(desc, family->specs[i]);
    }
  }
}

std::string DispatchCache::Impl::EntryLine(const GemmDesc& desc, const LaunchSpec& spec,
                                           const std::string& extra) const {
  json object = extra.empty() ? json::object() : json::parse(extra, nullptr, false);
  if (!object.is_object()) object = json::object();
  object["schema"] = kSchema;
  object["problem"] = KeyOf(desc);
  object["device"] = device;
  object["policy"] = MeasurePolicyName(policy);
  object["kernel"] = spec.kernel->name();
  object["fingerprint"] = spec.kernel->info().fingerprint;
  object["swizzle"] = spec.swizzle;
  object["splits"] = spec.splits;
  if (const std::string config = spec.kernel->ConfigText(spec.config); !config.empty())
    object["config"] = config;
  object["measured_us"] = IsTime(spec.measured_us) ? spec.measured_us : 0.0f;
  object["predicted_us"] = IsTime(spec.predicted_us) ? spec.predicted_us : 0.0f;
  return Seal(object);
}

int DispatchCache::Export(std::ostream& out) const {
  try {
    std::set<std::string> lines = impl_->aside;
    for (const Family& family : impl_->table.families()) {
      for (std::size_t i = 0; i < family.batches.size(); ++i) {
        GemmDesc desc = family.key;
        SetBatch(desc, family.batches[i]);
        lines.insert(impl_->EntryLine(desc, family.specs[i], family.extra[i]));
      }
    }
    out << HeaderLine(impl_->device) << '\n';
    for (const std::string& line : lines) out << line << '\n';
    out.flush();
  } catch (
      ...) {  // a stream with exceptions switched on, or no memory: the caller sees -1 either way
    return -1;
  }
  return out ? static_cast<int>(impl_->entries) : -1;
}

DispatchCache::Impl::Line DispatchCache::Impl::Take(const std::string& text, int number,
                                                    Standing& standing,
                                                    std::vector<int>& overtaken) {
  auto object = Unseal(text);
  if (!object) return Line::kCorrupt;
  if (object->contains("format")) {
    return StringMember(*object, "format") == kFormat ? Line::kHeader : Line::kCorrupt;
  }
  const auto schema = IntegerMember(*object, "schema");
  if (!schema || *schema < 1) return Line::kCorrupt;
  const auto keep_aside = [&](Line line) {
    aside.insert(Seal(*object));
    return line;
  };
  if (*schema > kSchema) return keep_aside(Line::kForeign);

  const auto problem = StringMember(*object, "problem"), name = StringMember(*object, "kernel");
  const auto entry_device = StringMember(*object, "device"),
             fingerprint = StringMember(*object, "fingerprint");
  const auto swizzle = IntegerMember(*object, "swizzle"), splits = IntegerMember(*object, "splits");
  const auto measured = NumberMember(*object, "measured_us"),
             predicted = NumberMember(*object, "predicted_us");
  if (!problem || !name || !entry_device || !fingerprint || !swizzle || !splits || !measured)
    return Line::kCorrupt;
  if (!InRange(*swizzle, *splits, *measured)) return Line::kCorrupt;
  // Lines of versions that did not say it were measured cold, as is the default.
  const auto entry_policy = object->contains("policy")
                                ? StringMember(*object, "policy")
                                : std::string(MeasurePolicyName(MeasurePolicy::kCold));
  if (!entry_policy || (*entry_policy != MeasurePolicyName(MeasurePolicy::kCold) &&
                        *entry_policy != MeasurePolicyName(MeasurePolicy::kWarm))) {
    return Line::kCorrupt;
  }
  const auto kernel = by_name.find(*name);
  if (kernel == by_name.end()) return keep_aside(Line::kUnknownKernel);
  if (*entry_device != device || *entry_policy != MeasurePolicyName(policy))
    return keep_aside(Line::kForeign);
  if (*fingerprint != kernel->second->info().fingerprint) return keep_aside(Line::kStale);
  const auto desc = ParseKey(*problem);
  if (!desc || !Validate(*desc)) return Line::kCorrupt;
  if (kernel->second->IsFeasible(*desc)) return keep_aside(Line::kInfeasible);

  const auto config = object->contains("config") ? StringMember(*object, "config") : std::string();
  const auto launch = config ? kernel->second->ParseConfig(*config) : std::nullopt;
  if (!launch) return Line::kCorrupt;

  LaunchSpec spec;
  spec.kernel = kernel->second;
  spec.config = *launch;
  spec.swizzle = static_cast<std::int32_t>(*swizzle);
  spec.splits = static_cast<std::int32_t>(*splits);
  spec.measured_us = static_cast<float>(*measured);
  spec.predicted_us = static_cast<float>(predicted.value_or(0));
  if (!IsTime(spec.predicted_us)) spec.predicted_us = 0;
  for (const char* known : {"schema", "problem", "kernel", "device", "policy", "fingerprint",
                            "swizzle", "splits", "config", "measured_us", "predicted_us"}) {
    object->erase(known);
  }
  const Inserted inserted = Insert(*desc, spec, object->empty() ? std::string() : object->dump());
  if (inserted == Inserted::kWorse) return Line::kWorse;
  std::vector<int>& lines = standing[KeyOf(*desc)];
  if (inserted == Inserted::kReplaced)
    overtaken.insert(overtaken.end(), lines.begin(), lines.end());
  if (inserted == Inserted::kReplaced) lines.clear();
  lines.push_back(number);
  return Line::kResolved;
}

int DispatchCache::Import(std::istream& in) {
  ImportReport& report = impl_->report;
  report = {};
  // Trouble by kind: the first line of each is named.
  struct Kind {
    Impl::Line line;
    int ImportReport::*count;
    std::string_view words;
    int seen = 0, first = 0;
  };
  Kind kinds[] = {
      {Impl::Line::kUnknownKernel, &ImportReport::unknown_kernel,
       "name a kernel that is not here: kept aside"},
      {Impl::Line::kStale, &ImportReport::stale, "are of a kernel that changed since: kept aside"},
      {Impl::Line::kInfeasible, &ImportReport::stale,
       "name a kernel that refuses the problem: kept aside"},
      {Impl::Line::kForeign, &ImportReport::foreign,
       "are of another device, another policy or a later version: kept aside"},
      {Impl::Line::kCorrupt, &ImportReport::corrupt,
       "do not parse or fail their checksum: skipped"},
      {Impl::Line::kWorse, &ImportReport::worse, "are slower than others of the same problem"}};
  try {
    Impl::Standing standing;
    const auto count = [&kinds, &report](Impl::Line line, int number) {
      if (line == Impl::Line::kResolved) ++report.resolved;
      for (Kind& kind : kinds) {
        if (kind.line != line) continue;
        ++(report.*kind.count);
        kind.first = kind.seen++ == 0 ? number : std::min(kind.first, number);
      }
    };
    std::string text;
    for (int number = 1; std::getline(in, text); ++number) {
      if (!text.empty() && text.back() == '\r') text.pop_back();
      if (text.empty()) continue;
      std::vector<int> overtaken;
      count(impl_->Take(text, number, standing, overtaken), number);
      for (const int earlier : overtaken) {
        --report.resolved;
        count(Impl::Line::kWorse, earlier);
      }
    }
    for (const Kind& kind : kinds) {
      if (kind.seen > 0)
        report.messages.push_back(
            Format("{} entries {} (first: line {})", kind.seen, kind.words, kind.first));
    }
  } catch (...) {  // a stream with exceptions switched on, or no memory: what was read stands
    report.messages.emplace_back("reading stopped early");
  }
  return report.resolved;
}

}  // namespace tilewright
