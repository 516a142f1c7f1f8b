#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "artifact/store/compile_service.h"
#include "artifact/store/counters.h"
#include "artifact/store/flights.h"
#include "artifact/store/fork_guard.h"
#include "artifact/store/handle_table.h"
#include "artifact/store/layers.h"
#include "artifact/store/missing_list.h"
#include "artifact/store/warnings.h"
#include "tilewright/artifact_key.h"
#include "tilewright/artifact_store.h"

namespace tilewright {

/// What a test can replace.
struct StoreEnvironment {
  Filesystem* files = nullptr;               ///< null: SystemFilesystem()
  std::optional<ProcessIdentity> process{};  ///< default: ProcessIdentity::Current()
};

/// ArtifactStore::Open in the given environment.
Result<std::unique_ptr<ArtifactStore>> OpenArtifactStore(const KernelFamilies& families,
                                                         ArtifactStoreOptions options,
                                                         const StoreEnvironment& environment);

/// A requested kernel, and what is known about it so far. Used by one thread at a time.
struct KernelRequest {
  KernelSpec spec;
  const KernelFamily* family = nullptr;
  KeyRecord record;
  BundleNeeds needs;
  std::shared_ptr<const KernelCompiler> compiler;  // nullptr if none was needed or found
  std::optional<Error> no_compiler;
  std::optional<KeyRecord> action;
  bool layers_asked = false;
  std::vector<LayerMiss> misses;
  // When this request began to wait for another process that compiles it.
  std::optional<std::chrono::steady_clock::time_point> waiting_since;
  bool wait_is_over = false;
};

/// The outcome of one attempt: nullopt if another process is compiling and the wait is not over.
struct Attempt {
  std::optional<Flights::Outcome> outcome;
  bool compiled = false;
};

struct ArtifactStore::Impl final : public ForkAware {
  Impl(const KernelFamilies& families, KernelSources sources, ArtifactStoreOptions options,
       std::string root, BundleLayer bundles, const StoreEnvironment& environment);
  ~Impl() override;

  // State of running threads. The child of a fork starts with a new one; the old one stays unused,
  // since a thread that does not exist in the child may have held any part of it.
  struct Runtime {
    explicit Runtime(CompileService::Options compile) : service(std::move(compile)) {}
    Flights flights;
    CompileService service;
    std::unique_ptr<MissingList> missing_list;  // strict mode's; nullptr if there is no file for it
    std::mutex refused_mutex;
    // What the compiler rejected in this process, in case it cannot be stored.
    std::unordered_map<KernelSpec, std::pair<Error, std::int64_t>, SpecHash> refused;
    std::mutex active_mutex;
    std::condition_variable idle;
    int active = 0;
    std::mutex telling;  // of compiled kernels, one at a time
  };
  /// Counts a call that the destructor must wait for.
  class Active {
   public:
    explicit Active(Runtime& runtime);
    Active(const Active&) = delete;
    Active& operator=(const Active&) = delete;
    ~Active();

   private:
    Runtime& runtime_;
  };
  /// Marks this thread as leading a flight, perhaps with the only place to compile: the CancelFn
  /// that it calls must not wait for either.
  class Leading {
   public:
    explicit Leading(const Impl& store) : store_(store), outer_(std::exchange(innermost, this)) {}
    Leading(const Leading&) = delete;
    Leading& operator=(const Leading&) = delete;
    ~Leading() { innermost = outer_; }
    static bool Leads(const Impl& store) {
      const Leading* at = innermost;
      while (at != nullptr && &at->store_ != &store) at = at->outer_;
      return at != nullptr;
    }

   private:
    static thread_local const Leading* innermost;
    const Impl& store_;
    const Leading* const outer_;
  };
  static Error AskedWhileLeading(const KernelSpec& spec);
  Runtime& runtime() { return *runtime_.load(std::memory_order_acquire); }
  StoreDir* user() const { return folders.user(); }

  // --- serving (store_serve.cc, store_compile_all.cc)
  Result<const ArtifactData*> Compile(const KernelSpec& spec, const CancelFn& cancelled);
  std::vector<Result<KernelHandle>> CompileAll(std::span<const KernelSpec> specs,
                                               const CompileControl& control);
  /// Checks the spec and makes its request record.
  Result<KernelRequest> Resolve(const KernelSpec& spec) const;
  /// Returns the result of `body`. Any exception becomes the kernel's failure.
  template <class Body>
  static Attempt Guarded(const KernelSpec& spec, const Body& body) noexcept {
    try {
      return body();
    } catch (...) {
      return AttemptFromException(spec);
    }
  }
  /// From the exception that is being handled.
  static Attempt AttemptFromException(const KernelSpec& spec);
  Attempt Try(KernelRequest& request, const CancelFn& cancelled) noexcept {
    return Guarded(request.spec, [&] { return TryUnguarded(request, cancelled); });
  }
  Attempt TryUnguarded(KernelRequest& request, const CancelFn& cancelled);
  std::optional<Flights::Outcome> AskLayers(KernelRequest& request, const CancelFn& cancelled);
  std::optional<Flights::Outcome> AskFoldersAgain(KernelRequest& request);
  /// Finds a compiler and makes the action record, unless the mode needs neither.
  void ResolveAction(KernelRequest& request);
  void ResolveActionNow(KernelRequest& request);
  std::optional<Error> Refused(KernelRequest& request, bool count);
  Flights::Outcome Accept(KernelRequest& request, LayerHit hit, const CancelFn& cancelled);
  Flights::Outcome Missing(KernelRequest& request);
  void EndWait(KernelRequest& request);
  const ArtifactData* CountedFind(const KernelSpec& spec);

  // --- the compiler (store_compile.cc)
  Attempt CompileNow(KernelRequest& request, CompileService::Place place,
                     const CancelFn& cancelled);
  /// Compiles and counts.
  tl::expected<std::string, CompileFailure> Build(const KernelRequest& request,
                                                  CompileService::Place place,
                                                  const CancelFn& cancelled);
  Flights::Outcome Adopt(KernelRequest& request, std::string bytes);
  void Remember(const KernelRequest& request, const CompileFailure& failure);
  /// Recompiles and says what differs from `data`; "" if nothing does.
  Result<std::string> CompareWithRecompiled(const KernelRequest& request, const ArtifactData& data,
                                            const CancelFn& cancelled);
  /// The same for verification: only for what this compiler would produce, and counted in `report`.
  void VerifyAgainstCompiler(const ArtifactData& data, const std::string& place,
                             const CancelFn& cancelled, VerifyReport& report);

  // --- the rest
  Result<std::shared_ptr<const KernelCompiler>> Compiler();
  void Count(std::size_t counter, std::uint64_t amount = 1);
  /// Counts what the user's folder evicted since the last call.
  void CountEvictions();
  void CountMisses(const std::vector<LayerMiss>& misses);
  /// Reports and logs why layers that have the kernel did not serve it.
  void ReportMisses(const KernelRequest& request);
  std::unique_ptr<Runtime> NewRuntime() const;
  bool Publishes() const {
    return options.mode != CacheMode::kReadonly && options.mode != CacheMode::kStrict;
  }

  void BeforeFork() override;
  void AfterForkInParent() override;
  void AfterForkInChild() override;

  const KernelFamilies families;
  const KernelSources sources;
  const ArtifactStoreOptions options;
  const std::string root;  // "" if there is no folder
  const BundleLayer bundles;
  Filesystem& files;
  const ProcessIdentity process;

  Warnings warnings;
  FolderLayers folders;
  HandleTable table;
  CounterSet counters;
  std::atomic<std::uint64_t> evictions_counted{0};

  std::mutex compiler_mutex;
  std::optional<Result<std::shared_ptr<const KernelCompiler>>> compiler;
  std::int64_t compiler_sought_unix_s = 0;

 private:
  std::atomic<Runtime*> runtime_;
};

}  // namespace tilewright
