// Serves one kernel: from the layers in their order, else by compiling it, once among the threads
// of this store (Flights) and once among processes (the key locks of the folders).

#include <algorithm>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "artifact/build.h"
#include "artifact/store/messages.h"
#include "artifact/store/store_impl.h"
#include "core/log.h"
#include "core/text.h"

namespace tilewright {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::uint64_t MicrosecondsSince(Clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
}

std::int64_t MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
}

Error CancelledError(const KernelSpec& spec) {
  return {ErrorCode::kCancelled, SpecName(spec) + ": cancelled"};
}

bool Asked(const CancelFn& cancelled) { return cancelled && cancelled(); }

/// Why the compiler's output could not run on the device; known without compiling.
std::optional<BundleRefusal> RefusalOfTheCompiled(const KernelRequest& request) {
  ArtifactData made;
  made.spec = request.spec;
  made.min_driver = MinDriver(request.compiler->identity());
  return DeviceRefusal(made, request.needs);
}

}  // namespace

Result<KernelRequest> ArtifactStore::Impl::Resolve(const KernelSpec& spec) const {
  KernelRequest request;
  request.spec = spec;
  request.family = families.Find(spec.family);
  if (request.family == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("no kernel family \"{}\" in this store", spec.family.view()));
  }
  auto record = MakeRequestRecord(spec, *request.family, sources);
  if (!record) return Fail(std::move(record.error()));
  request.record = std::move(*record);
  request.needs = options.device;
  request.needs.launch_abi = request.family->launch_abi;
  return request;
}

const ArtifactData* ArtifactStore::Impl::CountedFind(const KernelSpec& spec) {
  const ArtifactData* const data = table.Find(spec);
  if (data != nullptr) Count(HitIndex(ArtifactLayer::kMemory));
  return data;
}

thread_local const ArtifactStore::Impl::Leading* ArtifactStore::Impl::Leading::innermost = nullptr;

Error ArtifactStore::Impl::AskedWhileLeading(const KernelSpec& spec) {
  return {ErrorCode::kInvalidArgument,
          SpecName(spec) +
              ": requested by the CancelFn of a compilation of the same store, which "
              "would wait for itself"};
}

Result<const ArtifactData*> ArtifactStore::Impl::Compile(const KernelSpec& spec,
                                                         const CancelFn& cancelled) {
  if (const ArtifactData* const data = CountedFind(spec)) return data;
  if (Leading::Leads(*this)) return Fail(AskedWhileLeading(spec));
  const Active active(runtime());
  auto request = Resolve(spec);
  if (!request) return Fail(std::move(request.error()));
  const Leading leading(*this);
  while (true) {
    if (Asked(cancelled)) return Fail(CancelledError(spec));
    Flights::Joined joined = runtime().flights.Join(spec);
    if (!joined.leader) {
      std::optional<Flights::Outcome> outcome;
      switch (Flights::WaitFor(*joined.flight, cancelled, outcome)) {
        case Flights::Wait::kCancelled:
          return Fail(CancelledError(spec));
        case Flights::Wait::kOutcome:
          if (*outcome) Count(HitIndex(ArtifactLayer::kMemory));
          return *outcome;
        case Flights::Wait::kNoOutcome:
          continue;
      }
    }
    // This thread leads until there is an outcome; it checks on another process after 1, 2, 4 ...
    // 50 ms.
    milliseconds pause(1);
    while (true) {
      Attempt attempt = Try(*request, cancelled);
      if (attempt.outcome) {
        // Its own cancellation is not an outcome for the waiters: one of them leads next.
        const bool own_affair =
            !*attempt.outcome && attempt.outcome->error().code == ErrorCode::kCancelled;
        if (!own_affair) joined.leader->Finish(*attempt.outcome);
        return *attempt.outcome;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, milliseconds(50));
      if (Asked(cancelled)) return Fail(CancelledError(spec));
    }
  }
}

Attempt ArtifactStore::Impl::AttemptFromException(const KernelSpec& spec) {
  const auto failed = [&](ErrorCode code, const char* what) {
    Attempt attempt;
    attempt.outcome = Fail(code, Format("{}: {}", SpecName(spec), what));
    return attempt;
  };
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::kOutOfMemory, "out of memory");
  } catch (const std::exception& exception) {
    return failed(ErrorCode::kInternal, exception.what());
  } catch (...) {
    return failed(ErrorCode::kInternal, "the compiler threw something other than a std::exception");
  }
}

Attempt ArtifactStore::Impl::TryUnguarded(KernelRequest& request, const CancelFn& cancelled) {
  // Another thread may have finished between the caller's lookup and its flight.
  if (const ArtifactData* const data = CountedFind(request.spec)) return {data, false};
  if (!request.layers_asked) {
    request.layers_asked = true;
    if (auto outcome = AskLayers(request, cancelled)) return {std::move(outcome), false};
    if (options.mode == CacheMode::kStrict) return {Missing(request), false};
    if (!request.action) {
      Count(CounterIndex(&ArtifactCounters::requests_missed));
      return {Fail(ErrorCode::kUnavailable,
                   Format("{}: no compiler ({}), and no stored artifact can be used ({})",
                          SpecName(request.spec), request.no_compiler->message,
                          DescribeMisses(request.misses))),
              false};
    }
  }
  if (const auto refusal = RefusalOfTheCompiled(request)) {
    Count(CounterIndex(&ArtifactCounters::requests_missed));
    return {Fail(ErrorCode::kUnsupported,
                 Format("{}: {}", SpecName(request.spec), refusal->ToString())),
            false};
  }
  // In refresh mode every process compiles for itself, so there is nobody to wait for.
  const bool locks_used = Publishes() && options.mode != CacheMode::kRefresh;
  CompileService& service = runtime().service;
  CompileService::Place place;
  while (true) {
    FolderLayers::Locks locks;
    if (locks_used && !request.wait_is_over) {
      const bool mine = folders.TryLock(request.action->key, locks);
      if (!mine && !request.waiting_since) request.waiting_since = Clock::now();
      // Also when the lock is held: its last holder may have published since the first lookup.
      if (auto outcome = AskFoldersAgain(request)) {
        EndWait(request);
        return {std::move(outcome), false};
      }
      if (!mine) {
        // Compared as integers: the longest wait that can be requested would overflow the clock.
        if (MillisecondsSince(*request.waiting_since) < options.lock_wait_ms) return {};
        Count(CounterIndex(&ArtifactCounters::lock_timeouts));
        LogInfo(Format("{}: compiled here too, after {} ms of waiting for another process",
                       SpecName(request.spec), options.lock_wait_ms));
        request.wait_is_over = true;  // the holder hangs or is too slow
      }
      EndWait(request);
    }
    if (!place) place = service.TryTake();
    if (place) return CompileNow(request, std::move(place), cancelled);
    // No free place to compile: release the lock while this thread waits, so that another process
    // that has a place need not wait for this one.
    locks.held.clear();
    while (!place) {
      if (Asked(cancelled)) return {Fail(CancelledError(request.spec)), false};
      place = service.Take(milliseconds(50));
    }
  }
}

/// Records how long this request has waited for another process, if it did.
void ArtifactStore::Impl::EndWait(KernelRequest& request) {
  if (!request.waiting_since) return;
  Count(CounterIndex(&ArtifactCounters::lock_waits));
  Count(CounterIndex(&ArtifactCounters::lock_wait_us), MicrosecondsSince(*request.waiting_since));
  request.waiting_since.reset();
}

void ArtifactStore::Impl::ResolveAction(KernelRequest& request) {
  // Strict mode needs a compiler only for the names of entries in folders.
  if (options.mode == CacheMode::kStrict && !folders.any()) return;
  ResolveActionNow(request);
}

void ArtifactStore::Impl::ResolveActionNow(KernelRequest& request) {
  auto found = Compiler();
  if (!found) {
    request.no_compiler = Error{found.error().code, OneLine(found.error().message)};
    return;
  }
  auto action = MakeActionRecord(request.record.key, (*found)->identity());
  if (!action) {
    request.no_compiler = action.error();
    return;
  }
  request.compiler = std::move(*found);
  request.action = std::move(*action);
}

/// The compiler's error for exactly this request, if remembered and still valid. Failures of other
/// processes do not count if the mode is to do the work again.
std::optional<Error> ArtifactStore::Impl::Refused(KernelRequest& request, bool count) {
  const auto miss = [&](ArtifactLayer layer) {
    if (!count) return;
    std::erase_if(request.misses, [&](const LayerMiss& old) { return old.layer == layer; });
    request.misses.push_back({layer, MissReason::kNegative, "", "", false});
  };
  {
    Runtime& here = runtime();
    const std::lock_guard lock(here.refused_mutex);
    const auto it = here.refused.find(request.spec);
    if (it != here.refused.end()) {
      const std::int64_t age = files.NowUnixSeconds() - it->second.second;
      if (age >= 0 && age < options.negative_ttl_s) {
        miss(ArtifactLayer::kMemory);
        return it->second.first;
      }
      here.refused.erase(it);
    }
  }
  StoreDir* const dir = user();
  const bool again = options.mode == CacheMode::kRefresh || options.mode == CacheMode::kVerify;
  if (dir == nullptr || !request.action || again) return {};
  const auto negative = dir->FindNegative(request.action->key);
  if (!negative) return {};
  miss(ArtifactLayer::kUser);
  return Error{
      ErrorCode::kUnsupported,
      Format("{}: rejected by the compiler before: {} (its whole log: {})", SpecName(request.spec),
             TellingLine(negative->log), dir->NegativePath(request.action->key))};
}

std::optional<Flights::Outcome> ArtifactStore::Impl::AskLayers(KernelRequest& request,
                                                               const CancelFn& cancelled) {
  request.misses.push_back({ArtifactLayer::kMemory, MissReason::kAbsent, "", "", false});
  const bool look = options.mode != CacheMode::kRefresh;
  std::optional<LayerHit> hit;
  if (look) {
    hit = bundles.Find(request.record.key, request.needs, request.misses);
  } else if (!bundles.all().empty()) {
    request.misses.push_back({ArtifactLayer::kBundle, MissReason::kIgnored, "", "", false});
  }
  if (!hit || options.mode == CacheMode::kVerify) ResolveAction(request);
  std::optional<Error> refused;
  if (!hit && request.action) {
    if (look) {
      hit = folders.Find(request.action->key, request.needs, request.misses);
    } else {
      for (const auto& folder : folders.all()) {
        request.misses.push_back(
            {folder.layer, MissReason::kIgnored, folder.dir->root(), "", false});
      }
    }
    if (!hit) refused = Refused(request, true);
  }
  CountMisses(request.misses);
  ReportMisses(request);
  if (hit) return Accept(request, std::move(*hit), cancelled);
  if (refused) {
    Count(CounterIndex(&ArtifactCounters::requests_missed));
    return Fail(std::move(*refused));
  }
  return std::nullopt;
}

/// Searches again for what another process has published or recorded as failed in the meantime.
std::optional<Flights::Outcome> ArtifactStore::Impl::AskFoldersAgain(KernelRequest& request) {
  std::vector<LayerMiss> misses;  // counted the first time
  if (auto hit = folders.Find(request.action->key, request.needs, misses)) {
    // What another process has just compiled need not be verified.
    return Accept(request, std::move(*hit), nullptr);
  }
  for (const LayerMiss& miss : misses) {
    if (miss.quarantined) Count(CounterIndex(&ArtifactCounters::quarantined));
  }
  if (auto refused = Refused(request, false)) {
    Count(CounterIndex(&ArtifactCounters::requests_missed));
    return Fail(std::move(*refused));
  }
  return std::nullopt;
}

Flights::Outcome ArtifactStore::Impl::Accept(KernelRequest& request, LayerHit hit,
                                             const CancelFn& cancelled) {
  const ArtifactData& data = hit.held->data;
  if (options.mode == CacheMode::kVerify && !request.waiting_since) {
    auto difference = CompareWithRecompiled(request, data, cancelled);
    if (!difference) return Fail(std::move(difference.error()));
    if (!difference->empty()) {
      Count(CounterIndex(&ArtifactCounters::verify_mismatches));
      return Fail(ErrorCode::kCorrupt,
                  Format("{}: compiled again, it differs from what {} holds: {}",
                         SpecName(request.spec), hit.place, *difference));
    }
  }
  Count(HitIndex(hit.layer));
  const double saved_us = data.compile_ms * 1e3 - hit.load_us;
  if (saved_us > 0) {
    Count(CounterIndex(&ArtifactCounters::saved_us), static_cast<std::uint64_t>(saved_us));
  }
  const bool foreign = hit.layer == ArtifactLayer::kSite || hit.layer == ArtifactLayer::kShared;
  if (foreign && Publishes()) {
    folders.Publish(data.action, hit.held->file.view(), true, false,
                    [&](StoreDir::Published published) {
                      if (published == StoreDir::Published::kNew) {
                        Count(CounterIndex(&ArtifactCounters::publishes));
                      }
                    });
    CountEvictions();
  }
  return table.Insert(std::move(hit.held));
}

/// The error of strict mode; adds the spec to the list.
Flights::Outcome ArtifactStore::Impl::Missing(KernelRequest& request) {
  Count(CounterIndex(&ArtifactCounters::requests_missed));
  const std::string name = SpecName(request.spec);
  std::string text = Format("{} is not stored, and strict mode compiles nothing ({})", name,
                            DescribeMisses(request.misses));
  if (request.no_compiler) {
    text += "; folders were not searched, since their entries are named by compiler: " +
            request.no_compiler->message;
  }
  MissingList* const list = runtime().missing_list.get();
  if (list == nullptr) return Fail(ErrorCode::kNotFound, text + "; there is no list to add it to");
  if (const auto noted = list->Note(name); !noted) {
    warnings.Report("missing list", noted.error().message);
    return Fail(ErrorCode::kNotFound, text + "; not added to the list: " + noted.error().message);
  }
  return Fail(ErrorCode::kNotFound, text + "; added to " + list->path());
}

}  // namespace tilewright
