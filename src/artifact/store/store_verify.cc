// Whether the contents of a store are intact and reproducible by the compiler.

#include <new>
#include <utility>
#include <vector>

#include "artifact/store/messages.h"
#include "artifact/store/store_impl.h"
#include "core/text.h"

namespace tilewright {

namespace {

using Report = ArtifactStore::VerifyReport;

/// One step of a verification: an entry file, a bundle as a whole, or one entry of it.
struct Task {
  const StoreDir::EntryFile* file = nullptr;
  const Bundle* bundle = nullptr;
  std::optional<std::size_t> index;  ///< of a bundle's entry; nullopt: the bundle as a whole
  std::size_t entries = 1;           ///< that it counts for in the progress
};

/// What one step found. Belongs to the thread that runs the step, until it has ended.
struct Finding {
  Report report;  ///< `cancelled`: not checked, or not completely
  KernelSpec spec;
};

/// The files, then the bundles: the order of the report's lines.
std::vector<Task> TasksOf(const std::vector<StoreDir::EntryFile>& files, const BundleLayer& bundles,
                          bool recompile) {
  std::vector<Task> tasks;
  for (const StoreDir::EntryFile& file : files) tasks.push_back({.file = &file, .index = {}});
  for (const auto& bundle : bundles.all()) {
    tasks.push_back(
        {.bundle = bundle.get(), .index = {}, .entries = recompile ? 0 : bundle->size()});
    for (std::size_t i = 0; recompile && i < bundle->size(); ++i) {
      tasks.push_back({.bundle = bundle.get(), .index = i});
    }
  }
  return tasks;
}

void Add(Report&& part, Report& sum) {
  sum.good += part.good;
  std::move(part.troubles.begin(), part.troubles.end(), std::back_inserter(sum.troubles));
  sum.recompiled += part.recompiled;
  sum.differ += part.differ;
  sum.not_ours += part.not_ours;
  sum.not_recompiled += part.not_recompiled;
  if (sum.why_not.empty()) sum.why_not = std::move(part.why_not);
  sum.cancelled = sum.cancelled || part.cancelled;
}

}  // namespace

void ArtifactStore::Impl::VerifyAgainstCompiler(const ArtifactData& data, const std::string& place,
                                                const CancelFn& cancelled, VerifyReport& report) {
  auto request = Resolve(data.spec);
  // Made by another library version or another compiler: intact, but not reproducible here.
  if (!request || request->record.key != data.request) {
    ++report.not_ours;
    return;
  }
  ResolveActionNow(*request);
  if (request->action && request->action->key != data.action) {
    ++report.not_ours;
    return;
  }
  const auto difference = CompareWithRecompiled(*request, data, cancelled);
  if (!difference) {
    if (difference.error().code == ErrorCode::kCancelled) {
      report.cancelled = true;
      return;
    }
    ++report.not_recompiled;
    report.why_not = OneLine(difference.error().message);
    return;
  }
  ++report.recompiled;
  if (difference->empty()) return;
  ++report.differ;
  Count(CounterIndex(&ArtifactCounters::verify_mismatches));
  report.troubles.push_back(Format("{}: {}: {}", place, SpecName(data.spec), *difference));
}

ArtifactStore::VerifyReport ArtifactStore::Verify(bool recompile, const CompileControl& control) {
  const Impl::Active active(impl_->runtime());
  std::vector<StoreDir::EntryFile> files;
  StoreDir* const dir = impl_->user();
  if (dir != nullptr) files = dir->Entries();
  const std::vector<Task> tasks = TasksOf(files, impl_->bundles, recompile);
  std::vector<Finding> findings(tasks.size());

  const auto look = [&](const Task& task, Finding& finding, const CancelFn& cancelled) {
    Report& report = finding.report;
    if (task.file != nullptr) {
      StoreDir::Lookup lookup = dir->Look(task.file->action);
      // Find checks again, and moves a damaged file out of the way.
      if (!lookup.found) lookup = dir->Find(task.file->action);
      if (lookup.quarantined) impl_->Count(CounterIndex(&ArtifactCounters::quarantined));
      if (!lookup.found) {
        if (lookup.miss == MissReason::kIncompatible) {
          ++report.not_ours;  // of another version, which may share this folder
          return;
        }
        // Without a detail, another process has removed it meanwhile, which is not damage.
        if (!lookup.detail.empty()) {
          report.troubles.push_back(Format("{}: {}", task.file->path, lookup.detail));
        }
        return;
      }
      ++report.good;
      const ArtifactData& data = lookup.found->data;
      finding.spec = data.spec;
      if (recompile) impl_->VerifyAgainstCompiler(data, task.file->path, cancelled, report);
    } else if (!task.index) {
      Bundle::VerifyResult whole = task.bundle->Verify();
      report.good += whole.good;
      for (const std::string& trouble : whole.troubles) {
        report.troubles.push_back(task.bundle->path() + ": " + trouble);
      }
    } else if (const auto data = task.bundle->Load(*task.index)) {
      finding.spec = data->spec;
      impl_->VerifyAgainstCompiler(*data, task.bundle->path(), cancelled, report);
    }
  };
  const auto take = [&](std::size_t i, const CancelFn& cancelled) {
    Finding& finding = findings[i];
    finding.report.cancelled = cancelled && cancelled();
    if (finding.report.cancelled) return;
    try {
      look(tasks[i], finding, cancelled);
    } catch (const std::bad_alloc&) {
      // Nothing is known to be wrong with it.
      ++finding.report.not_recompiled;
      finding.report.why_not = "out of memory";
    }
  };

  CompileProgress progress;
  for (const Task& task : tasks) progress.total += task.entries;
  CompileService::RunControl run;
  run.cancelled = control.cancelled;
  run.done = [&](std::size_t i) {
    const Finding& finding = findings[i];
    if (finding.report.cancelled) return;
    progress.done += tasks[i].entries;
    progress.compiled += finding.report.recompiled;
    progress.last = finding.spec;
    if (control.progress) control.progress(progress);
  };
  // Polled before anything is done, since checking a few files may be faster than the first poll.
  if (!tasks.empty() && control.cancelled && control.cancelled()) {
    Report none;
    none.cancelled = true;
    return none;
  }
  impl_->runtime().service.Run(tasks.size(), take, run);

  Report report;
  for (Finding& finding : findings) Add(std::move(finding.report), report);
  return report;
}

}  // namespace tilewright
