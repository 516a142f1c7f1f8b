// Why a kernel is not served, and which stored entry is nearest to it.

#include <algorithm>
#include <limits>
#include <utility>

#include "artifact/store/messages.h"
#include "artifact/store/store_impl.h"
#include "core/text.h"

namespace tilewright {

namespace {

using Explanation = ArtifactStore::MissExplanation;

/// The stored entry that differs in the fewest fields; one of the same family before any other.
class Nearest {
 public:
  Nearest(const KernelRequest& request, Explanation& explanation)
      : request_(request), explanation_(explanation) {}

  /// `by_compiler`: from a layer that is searched by action key, where the compiler matters.
  void Offer(const ArtifactData& data, const std::string& place, bool by_compiler) {
    auto differences = DiffKeyRecords(request_.record.bytes, data.request_record);
    if (!differences) return;
    if (by_compiler && request_.action) {
      const auto action = DiffKeyRecords(request_.action->bytes, data.action_record);
      if (!action) return;
      for (const KeyDifference& one : *action) {
        if (one.field == "request") continue;  // reported field by field
        differences->push_back({"compiler " + one.field, one.wanted, one.stored});
      }
    } else if (by_compiler) {
      differences->push_back({"compiler", "none", data.compiler.ToString()});
    }
    const std::size_t distance =
        differences->size() + (data.spec.family == request_.spec.family ? 0 : 1000);
    if (distance >= best_) return;
    best_ = distance;
    explanation_.nearest = Format("{} in {}", SpecName(data.spec), place);
    explanation_.differences = std::move(*differences);
  }

 private:
  const KernelRequest& request_;
  Explanation& explanation_;
  std::size_t best_ = std::numeric_limits<std::size_t>::max();
};

/// How a store searches, apart from what it searches for.
struct Look {
  bool ignored = false;  ///< it does not search
  bool whole = false;    ///< for complete artifacts only
};

void ExplainBundles(const BundleLayer& bundles, const KernelRequest& request, Look look,
                    Explanation& explanation) {
  for (const auto& bundle : bundles.all()) {
    Explanation::Layer layer;
    layer.layer = ArtifactLayer::kBundle;
    layer.place = bundle->path();
    if (const auto index = bundle->Find(request.record.key)) {
      const auto data = bundle->Load(*index);
      if (look.ignored) {
        layer.reason = MissReason::kIgnored;
      } else if (const auto refusal = bundle->Check(*index, request.needs)) {
        layer.reason =
            refusal->field == "payload_digest" ? MissReason::kCorrupt : MissReason::kIncompatible;
        layer.detail = refusal->ToString();
      } else if (data && look.whole && !LeftOut(*data).empty()) {
        layer.reason = MissReason::kIncompatible;
        layer.detail = LeftOut(*data);
      } else {
        layer.hit = true;
      }
    } else if (look.ignored) {
      layer.reason = MissReason::kIgnored;
    }
    explanation.layers.push_back(std::move(layer));
  }
}

void ExplainFolder(const FolderLayers::Folder& folder, const KernelRequest& request, Look look,
                   Explanation& explanation) {
  Explanation::Layer layer;
  layer.layer = folder.layer;
  layer.place = folder.dir->root();
  if (!request.action) {
    layer.reason = MissReason::kIgnored;
    layer.detail = "its entries are named by compiler";
    if (request.no_compiler) layer.detail += ", and " + request.no_compiler->message;
  } else if (look.ignored) {
    layer.reason = MissReason::kIgnored;
  } else {
    const StoreDir::Lookup lookup = folder.dir->Look(request.action->key);
    if (!lookup.found) {
      layer.reason = lookup.miss;
      layer.detail = lookup.detail;
    } else if (const auto refusal = DeviceRefusal(lookup.found->data, request.needs)) {
      layer.reason = MissReason::kIncompatible;
      layer.detail = refusal->ToString();
    } else if (look.whole && !LeftOut(lookup.found->data).empty()) {
      layer.reason = MissReason::kIncompatible;
      layer.detail = LeftOut(lookup.found->data);
    } else {
      layer.hit = true;
      layer.place = folder.dir->EntryPath(request.action->key);
    }
    if (!layer.hit && layer.reason == MissReason::kAbsent && folder.layer == ArtifactLayer::kUser) {
      if (const auto negative = folder.dir->FindNegative(request.action->key)) {
        layer.reason = MissReason::kNegative;
        layer.detail = TellingLine(negative->log);
      }
    }
  }
  explanation.layers.push_back(std::move(layer));
}

}  // namespace

Result<ArtifactStore::MissExplanation> ArtifactStore::Explain(const KernelSpec& spec) const {
  auto request = impl_->Resolve(spec);
  if (!request) return Fail(std::move(request.error()));
  impl_->ResolveAction(*request);
  MissExplanation explanation;
  explanation.request = request->record.key;
  if (request->action) explanation.action = request->action->key;
  const Look look{impl_->options.mode == CacheMode::kRefresh, impl_->options.whole_artifacts};

  MissExplanation::Layer& memory = explanation.layers.emplace_back();
  memory.layer = ArtifactLayer::kMemory;
  memory.hit = impl_->table.Find(spec) != nullptr;
  ExplainBundles(impl_->bundles, *request, look, explanation);
  for (const auto& folder : impl_->folders.all()) {
    ExplainFolder(folder, *request, look, explanation);
  }
  if (std::any_of(explanation.layers.begin(), explanation.layers.end(),
                  [](const MissExplanation::Layer& layer) { return layer.hit; })) {
    return explanation;
  }
  Nearest nearest(*request, explanation);
  for (const auto& bundle : impl_->bundles.all()) {
    for (std::size_t i = 0; i < bundle->size(); ++i) {
      if (const auto data = bundle->Load(i)) nearest.Offer(*data, bundle->path(), false);
    }
  }
  for (const auto& folder : impl_->folders.all()) {
    for (const StoreDir::EntryFile& file : folder.dir->Entries()) {
      const StoreDir::Lookup lookup = folder.dir->Look(file.action);
      if (lookup.found) nearest.Offer(lookup.found->data, file.path, true);
    }
  }
  return explanation;
}

}  // namespace tilewright
