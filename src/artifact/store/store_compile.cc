// Calling the compiler, and handling its results.

#include <algorithm>
#include <utility>

#include "artifact/store/store_impl.h"
#include "core/log.h"
#include "core/text.h"

namespace tilewright {

tl::expected<std::string, CompileFailure> ArtifactStore::Impl::Build(const KernelRequest& request,
                                                                     CompileService::Place place,
                                                                     const CancelFn& cancelled) {
  auto made = runtime().service.Build(request.spec, *request.family, sources, *request.compiler,
                                      cancelled, std::move(place));
  if (!made) {
    Count(CounterIndex(&ArtifactCounters::compile_failures));
    return tl::unexpected<CompileFailure>(std::move(made.error()));
  }
  Count(CounterIndex(&ArtifactCounters::compiles));
  Count(CounterIndex(&ArtifactCounters::compile_us),
        static_cast<std::uint64_t>(std::max(0.0, made->compile_ms) * 1e3));
  if (LogEnabled(LogLevel::kInfo)) {
    LogInfo(Format("compiled {} in {:.0f} ms", SpecName(request.spec), made->compile_ms));
  }
  if (options.on_compiled) {
    const std::lock_guard lock(runtime().telling);
    options.on_compiled(request.spec, made->compile_ms);
  }
  return std::move(made->entry);
}

Attempt ArtifactStore::Impl::CompileNow(KernelRequest& request, CompileService::Place place,
                                        const CancelFn& cancelled) {
  Count(CounterIndex(&ArtifactCounters::requests_missed));
  auto bytes = Build(request, std::move(place), cancelled);
  if (!bytes) {
    if (bytes.error().deterministic) Remember(request, bytes.error());
    return {Fail(std::move(bytes.error().error)), true};
  }
  return {Adopt(request, std::move(*bytes)), true};
}

/// Stores and keeps what was just compiled.
Flights::Outcome ArtifactStore::Impl::Adopt(KernelRequest& request, std::string bytes) {
  auto held = std::make_unique<HeldArtifact>();
  held->bytes = std::move(bytes);
  auto data = DecodeArtifact(held->bytes);
  if (!data) {
    return Fail(ErrorCode::kInternal, Format("{}: the new entry cannot be read back: {}",
                                             SpecName(request.spec), data.error().message));
  }
  held->data = std::move(*data);
  if (Publishes()) {
    const bool refresh = options.mode == CacheMode::kRefresh;
    const bool lost = folders.Publish(
        held->data.action, held->bytes, false, refresh, [&](StoreDir::Published published) {
          Count(CounterIndex(published == StoreDir::Published::kNew
                                 ? &ArtifactCounters::publishes
                                 : &ArtifactCounters::publishes_lost));
        });
    CountEvictions();
    // Another process was first: use its kernel, so that both have the same.
    std::vector<LayerMiss> misses;
    if (lost && !refresh) {
      if (auto theirs = folders.Find(held->data.action, request.needs, misses)) {
        return table.Insert(std::move(theirs->held));
      }
    }
  }
  return table.Insert(std::move(held));
}

/// Remembers that the compiler rejected a kernel, here and in the user's folder.
void ArtifactStore::Impl::Remember(const KernelRequest& request, const CompileFailure& failure) {
  const std::int64_t now = files.NowUnixSeconds();
  {
    Runtime& here = runtime();
    const std::lock_guard lock(here.refused_mutex);
    here.refused.insert_or_assign(request.spec, std::pair(failure.error, now));
  }
  if (!Publishes() || user() == nullptr) return;
  StoreDir::Negative negative;
  negative.log = failure.log.empty() ? failure.error.message : failure.log;
  negative.unix_s = now;
  negative.action_record = request.action->bytes;
  negative.request_record = request.record.bytes;
  user()->PublishNegative(request.action->key, negative);
}

Result<std::string> ArtifactStore::Impl::CompareWithRecompiled(const KernelRequest& request,
                                                               const ArtifactData& data,
                                                               const CancelFn& cancelled) {
  if (!request.action) {
    return Fail(ErrorCode::kUnavailable,
                Format("{}: verifying needs a compiler: {}", SpecName(request.spec),
                       request.no_compiler ? request.no_compiler->message : "there is none"));
  }
  // Another compiler's bytes may differ and still be right; bundles serve any compiler.
  if (data.action != request.action->key) return std::string();
  auto bytes = Build(request, {}, cancelled);
  if (!bytes) return Fail(std::move(bytes.error().error));
  const auto made = DecodeArtifact(*bytes);
  if (!made) return Fail(ErrorCode::kInternal, made.error().message);
  if (made->cubin != data.cubin) {
    return Format(
        "cubin of {} bytes compiled, {} bytes stored, first different at {}", made->cubin.size(),
        data.cubin.size(),
        std::mismatch(made->cubin.begin(), made->cubin.end(), data.cubin.begin(), data.cubin.end())
                .first -
            made->cubin.begin());
  }
  if (!data.ptx.empty() && made->ptx != data.ptx) {
    return Format("PTX of {} bytes compiled, {} bytes stored", made->ptx.size(), data.ptx.size());
  }
  return std::string();
}

}  // namespace tilewright
