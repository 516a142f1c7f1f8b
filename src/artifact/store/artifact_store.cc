#include "tilewright/artifact_store.h"

#include <cstdlib>
#include <filesystem>
#include <new>
#include <utility>

#include "artifact/store/messages.h"
#include "artifact/store/store_impl.h"
#include "core/paths.h"
#include "core/text.h"

namespace tilewright {

namespace {

/// The absolute path, unaffected by later changes of the working directory.
std::string Absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return path;
  // ".." after a symbolic link cannot be resolved textually.
  const bool plain = path.find("..") == std::string::npos;
  return (plain ? absolute.lexically_normal() : absolute).string();
}

ArtifactStoreOptions WithAbsolutePaths(ArtifactStoreOptions options) {
  options.shared_dir = Absolute(options.shared_dir);
  options.missing_list = Absolute(options.missing_list);
  options.nvrtc.path = Absolute(options.nvrtc.path);
  for (std::string& site : options.site_dirs) site = Absolute(site);
  for (std::string& bundle : options.bundles) bundle = Absolute(bundle);
  return options;
}

/// Reports a list that can never be written now, rather than when the first kernel is missing.
Status CheckMissingList(const ArtifactStoreOptions& options) {
  if (options.mode != CacheMode::kStrict || options.missing_list.empty()) return {};
  const std::filesystem::path path = options.missing_list;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("the list of missing kernels {} is a folder", options.missing_list));
  }
  if (!std::filesystem::is_directory(path.parent_path(), error)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("the list of missing kernels {} is in a folder that does not exist",
                       options.missing_list));
  }
  return {};
}

}  // namespace

std::string_view ArtifactLayerName(ArtifactLayer layer) {
  switch (layer) {
    case ArtifactLayer::kMemory:
      return "memory";
    case ArtifactLayer::kBundle:
      return "bundle";
    case ArtifactLayer::kUser:
      return "user";
    case ArtifactLayer::kSite:
      return "site";
    case ArtifactLayer::kShared:
      return "shared";
    case ArtifactLayer::kCompiled:
      return "compiled";
  }
  return "?";
}

std::string_view MissReasonName(MissReason reason) {
  switch (reason) {
    case MissReason::kAbsent:
      return "absent";
    case MissReason::kCorrupt:
      return "corrupt";
    case MissReason::kIncompatible:
      return "incompatible";
    case MissReason::kNegative:
      return "negative";
    case MissReason::kIgnored:
      return "ignored";
  }
  return "?";
}

// ---- Impl: everything but serving

ArtifactStore::Impl::Impl(const KernelFamilies& own_families, KernelSources own_sources,
                          ArtifactStoreOptions own_options, std::string own_root,
                          BundleLayer own_bundles, const StoreEnvironment& environment)
    : families(own_families),
      sources(std::move(own_sources)),
      options(std::move(own_options)),
      root(std::move(own_root)),
      bundles(std::move(own_bundles)),
      files(environment.files != nullptr ? *environment.files : SystemFilesystem()),
      process(environment.process ? *environment.process : ProcessIdentity::Current()),
      folders(root, options, files, process, warnings),
      runtime_(NewRuntime().release()) {
  if (options.compiler != nullptr) compiler = options.compiler;
  Watch();
}

ArtifactStore::Impl::~Impl() {
  Unwatch();
  const std::unique_ptr<Runtime> last(runtime_.load());
  std::unique_lock lock(last->active_mutex);
  last->idle.wait(lock, [&] { return last->active == 0; });
  lock.unlock();
}

std::unique_ptr<ArtifactStore::Impl::Runtime> ArtifactStore::Impl::NewRuntime() const {
  CompileService::Options compile;
  compile.threads = options.compile_threads;
  compile.memory_bytes = options.compile_memory_bytes;
  auto made = std::make_unique<Runtime>(std::move(compile));
  std::string list = options.missing_list;
  if (list.empty() && user() != nullptr) list = root + "/missing.txt";
  if (!list.empty()) made->missing_list = std::make_unique<MissingList>(std::move(list), files);
  return made;
}

ArtifactStore::Impl::Active::Active(Runtime& runtime) : runtime_(runtime) {
  const std::lock_guard lock(runtime_.active_mutex);
  ++runtime_.active;
}

ArtifactStore::Impl::Active::~Active() {
  // Notified with the lock held, since the waiting destructor may destroy the runtime next.
  const std::lock_guard lock(runtime_.active_mutex);
  if (--runtime_.active == 0) runtime_.idle.notify_all();
}

Result<std::shared_ptr<const KernelCompiler>> ArtifactStore::Impl::Compiler() {
  // A failure is remembered for a while, since searching everywhere again for every kernel would be
  // slow; not for ever, since it may be temporary (no descriptor left, a toolkit being installed).
  constexpr std::int64_t kLookAgainSeconds = 10;
  const std::lock_guard lock(compiler_mutex);
  const std::int64_t now = files.NowUnixSeconds();
  const bool again =
      compiler && !*compiler && std::abs(now - compiler_sought_unix_s) >= kLookAgainSeconds;
  if (!compiler || again) {
    compiler = LoadNvrtc(options.nvrtc);
    compiler_sought_unix_s = now;
  }
  return *compiler;
}

void ArtifactStore::Impl::Count(std::size_t counter, std::uint64_t amount) {
  counters.Add(counter, amount);
  if (StoreDir* const dir = user()) dir->Count(counter, amount);
}

void ArtifactStore::Impl::CountEvictions() {
  if (user() == nullptr) return;
  const std::uint64_t now = user()->evictions();
  std::uint64_t before = evictions_counted.load();
  while (before < now && !evictions_counted.compare_exchange_weak(before, now)) {
  }
  if (before < now) Count(CounterIndex(&ArtifactCounters::evictions), now - before);
}

void ArtifactStore::Impl::CountMisses(const std::vector<LayerMiss>& misses) {
  for (const LayerMiss& miss : misses) {
    Count(MissIndex(miss.layer, miss.reason));
    if (miss.quarantined) Count(CounterIndex(&ArtifactCounters::quarantined));
  }
}

void ArtifactStore::Impl::ReportMisses(const KernelRequest& request) {
  for (const LayerMiss& miss : request.misses) {
    if (miss.detail.empty()) continue;
    const bool bundle = miss.layer == ArtifactLayer::kBundle;
    // A folder's trouble is reported once, a bundle's once for each field that it was refused for.
    const std::string about = Format("{} {} {}", miss.place, MissReasonName(miss.reason),
                                     bundle ? miss.detail : std::string());
    warnings.Report(about, Format("{} {}: not used for {}: {}", ArtifactLayerName(miss.layer),
                                  miss.place, SpecName(request.spec), miss.detail));
  }
}

void ArtifactStore::Impl::BeforeFork() {
  // Locks what the child will use. Folders handle forks themselves; flights start anew (Runtime).
  compiler_mutex.lock();
  warnings.mutex().lock();
  table.writer_mutex().lock();
}

void ArtifactStore::Impl::AfterForkInParent() {
  table.writer_mutex().unlock();
  warnings.mutex().unlock();
  compiler_mutex.unlock();
}

void ArtifactStore::Impl::AfterForkInChild() {
  AfterForkInParent();
  runtime_.store(NewRuntime().release(), std::memory_order_release);
}

// ---- ArtifactStore

Result<std::unique_ptr<ArtifactStore>> OpenArtifactStore(const KernelFamilies& families,
                                                         ArtifactStoreOptions options,
                                                         const StoreEnvironment& environment) {
  if (options.mode > CacheMode::kRefresh) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("invalid cache mode {}", static_cast<unsigned>(options.mode)));
  }
  options = WithAbsolutePaths(std::move(options));
  auto sources = KernelSources::Make(families);
  if (!sources) return Fail(ErrorCode::kInvalidArgument, sources.error().message);
  if (auto list = CheckMissingList(options); !list) return Fail(std::move(list.error()));
  auto bundles = BundleLayer::Open(options);
  if (!bundles) return Fail(std::move(bundles.error()));
  std::string root = Absolute(options.root);
  std::string no_root;
  if (root.empty()) {
    if (const auto cache = CacheDir()) {
      root = Absolute(*cache + "/artifacts");
    } else {
      no_root = cache.error().message;
    }
  }
  auto impl =
      std::make_unique<ArtifactStore::Impl>(families, std::move(*sources), std::move(options),
                                            std::move(root), std::move(*bundles), environment);
  if (!no_root.empty()) {
    impl->warnings.Report("no root", "compiled kernels are kept in memory only: " + no_root);
  }
  return std::unique_ptr<ArtifactStore>(new ArtifactStore(std::move(impl)));
}

Result<std::unique_ptr<ArtifactStore>> ArtifactStore::Open(const KernelFamilies& families,
                                                           ArtifactStoreOptions options) {
  return OpenArtifactStore(families, std::move(options), {});
}

ArtifactStore::ArtifactStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ArtifactStore::~ArtifactStore() = default;

KernelHandle ArtifactStore::Find(const KernelSpec& spec) const noexcept {
  return KernelHandle(impl_->table.Find(spec));
}

Result<KernelHandle> ArtifactStore::Compile(const KernelSpec& spec, const CompileControl& control) {
  auto data = impl_->Compile(spec, control.cancelled);
  if (!data) return Fail(NamedError(spec, std::move(data.error())));
  return KernelHandle(*data);
}

std::vector<Result<KernelHandle>> ArtifactStore::CompileAll(std::span<const KernelSpec> specs,
                                                            const CompileControl& control) {
  const Impl::Active active(impl_->runtime());
  return impl_->CompileAll(specs, control);
}

Result<std::string> ArtifactStore::Serialize(KernelHandle handle) const {
  if (!handle) return Fail(ErrorCode::kInvalidArgument, "an empty handle has no bytes");
  return EncodeArtifact(*handle);
}

Result<KernelHandle> ArtifactStore::Deserialize(std::string_view bytes) {
  auto held = std::make_unique<HeldArtifact>();
  held->bytes = bytes;
  auto data = DecodeArtifact(held->bytes);
  if (!data) return Fail(std::move(data.error()));
  held->data = std::move(*data);
  const std::string name = SpecName(held->data.spec);
  auto request = impl_->Resolve(held->data.spec);
  if (!request) {
    return Fail(ErrorCode::kUnsupported,
                Format("{} is not a kernel of this store: {}", name, request.error().message));
  }
  if (request->record.key != held->data.request) {
    const auto differences = DiffKeyRecords(request->record.bytes, held->data.request_record);
    std::string text;
    if (differences) {
      for (const KeyDifference& one : *differences) {
        text += Format("{}{}: stored {}, expected {}", text.empty() ? "" : "; ", one.field,
                       one.stored, one.wanted);
      }
    }
    return Fail(ErrorCode::kUnsupported,
                Format("{} differs from what this store would produce: {}", name, text));
  }
  const std::string left_out = LeftOut(held->data);
  if (impl_->options.whole_artifacts && !left_out.empty()) {
    return Fail(ErrorCode::kUnsupported, Format("{}: {}", name, left_out));
  }
  if (const auto refusal = DeviceRefusal(held->data, request->needs)) {
    return Fail(ErrorCode::kUnsupported, Format("{}: {}", name, refusal->ToString()));
  }
  return KernelHandle(impl_->table.Insert(std::move(held)));
}

const KernelFamilies& ArtifactStore::families() const { return impl_->families; }
CacheMode ArtifactStore::mode() const { return impl_->options.mode; }
const std::string& ArtifactStore::root() const { return impl_->root; }

Result<CompilerIdentity> ArtifactStore::Compiler() const {
  auto compiler = impl_->Compiler();
  if (!compiler) return Fail(std::move(compiler.error()));
  return (*compiler)->identity();
}

std::vector<std::string> ArtifactStore::warnings() const { return impl_->warnings.All(); }

ArtifactCounters ArtifactStore::process_counters() const { return impl_->counters.Get(); }

ArtifactCounters ArtifactStore::counters() const {
  StoreDir* const dir = impl_->user();
  if (dir == nullptr || dir->state() == StoreDir::State::kRefused) return process_counters();
  return CountersFrom(dir->Counters());
}

ArtifactStore::Totals ArtifactStore::GetTotals() const {
  StoreDir* const dir = impl_->user();
  return dir == nullptr ? Totals{} : dir->GetTotals();
}

Result<bool> ArtifactStore::Import(std::string_view bytes) {
  const auto data = DecodeArtifact(bytes);
  if (!data) return Fail(data.error());
  StoreDir* const dir = impl_->user();
  if (dir == nullptr || !impl_->Publishes()) {
    return Fail(ErrorCode::kUnavailable,
                dir == nullptr
                    ? "there is no user folder to import into"
                    : Format("{} is not written in {} mode", dir->root(), CacheModeName(mode())));
  }
  std::string why;
  const StoreDir::Published published = dir->Publish(data->action, bytes, &why);
  impl_->CountEvictions();
  switch (published) {
    case StoreDir::Published::kNew:
      impl_->Count(CounterIndex(&ArtifactCounters::publishes));
      return true;
    case StoreDir::Published::kLost:
      return false;
    case StoreDir::Published::kNot:
      break;
  }
  return Fail(ErrorCode::kIo, Format("{}: not imported: {}", dir->root(), why));
}

}  // namespace tilewright
