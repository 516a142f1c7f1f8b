#include <mutex>
#include <optional>
#include <utility>

#include "api/open_device.h"
#include "api/worker_settings.h"
#include "core/paths.h"
#include "core/text.h"
#include "tilewright/tilewright.h"
#include "worker/session.h"

namespace tilewright {

struct Context::Impl {
  explicit Impl(Records opened) : records(std::move(opened)) {}

  ContextOptions options;
  std::unique_ptr<Executor> pool;
  Executor* executor = nullptr;
  OpenedDevice opened;
  DispatchCache ignored{std::vector<Kernel*>{}};  // what refresh sees of the times
  Records records;
  RecordScope scope;
  std::mutex reading;  // guards all below: they are made when first asked for
  std::unique_ptr<const DispatchCaches> caches;
  std::optional<BuildReport> report;

  // What the records say, and in the mode that ignores their times what they say of failures.
  const DispatchCaches& Caches() {
    const std::lock_guard<std::mutex> lock(reading);
    if (caches == nullptr) caches = DispatchCaches::Over(records, *opened.kernels, scope);
    return *caches;
  }
  std::vector<std::string> warnings;
};

Result<std::unique_ptr<Context>> Context::Create(const ContextOptions& options) {
  if (options.threads < 0 || options.threads > 4096) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("threads = {}, must be 0 to 4096", options.threads));
  }
  std::vector<std::string> warnings;
  const Result<std::string> folder =
      options.cache_dir.empty() ? CacheDir() : Result<std::string>(options.cache_dir);
  if (!folder) warnings.push_back(folder.error().message);
  std::unique_ptr<Executor> pool;
  if (options.executor == nullptr)
    pool = MakeThreadPool(options.threads > 0 ? options.threads : DefaultThreads());
  Executor* const executor = pool != nullptr ? pool.get() : options.executor;
  Result<OpenedDevice> opened =
      OpenDevice(options, folder.value_or(std::string()), *executor, warnings);
  if (!opened) return Fail(opened.error());

  Records::Options records_options;
  records_options.read_only = WritesNothing(options.cache_mode);
  auto impl = std::make_unique<Impl>(
      Records::Open(folder ? *folder + "/records.sqlite" : "", records_options));
  impl->options = options;
  impl->executor = executor;
  impl->pool = std::move(pool);
  impl->opened = std::move(*opened);
  const DeviceSpec& spec = impl->opened.device->spec();
  impl->scope = RecordScope{spec.ClassId(), impl->opened.libraries,
                            options.policy.value_or(PolicyFor(options.weight_bytes, spec))};
  for (const std::string& warning : impl->records.warnings()) warnings.push_back(warning);
  impl->warnings = std::move(warnings);
  std::unique_ptr<Context> context(new Context(std::move(impl)));
  return context;
}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;

Device& Context::device() const { return *impl_->opened.device; }
std::string_view Context::device_name() const { return impl_->opened.name; }
const std::string& Context::device_note() const { return impl_->opened.note; }
ArtifactStore* Context::artifacts() const { return impl_->opened.store.get(); }
const DeviceSpec& Context::device_spec() const { return impl_->opened.device->spec(); }
bool Context::calibrated() const { return impl_->opened.calibrated; }
Kernels& Context::kernels() { return *impl_->opened.kernels; }
const Kernels& Context::kernels() const { return *impl_->opened.kernels; }
Executor& Context::executor() const { return *impl_->executor; }
Records& Context::records() { return impl_->records; }
const DispatchCaches& Context::caches() const { return impl_->Caches(); }
const DispatchCache& Context::cache() const {
  return impl_->options.cache_mode == CacheMode::kRefresh ? impl_->ignored
                                                          : impl_->Caches().of<GemmOp>();
}
TunedKernels Context::tuned() const {
  return impl_->options.cache_mode == CacheMode::kRefresh ? TunedKernels() : caches().tuned();
}
// A kernel that failed here stays out in every mode: refresh measures times again, not crashes.
const Quarantine& Context::quarantine() const { return caches().quarantine(); }
const RecordScope& Context::scope() const { return impl_->scope; }
const BuildReport& Context::cache_report() const {
  const std::lock_guard<std::mutex> lock(impl_->reading);
  if (!impl_->report) {
    impl_->report.emplace();
    if (impl_->options.cache_mode != CacheMode::kRefresh)
      impl_->report = CountRecords(impl_->records, *impl_->opened.kernels, impl_->scope);
  }
  return *impl_->report;
}
std::span<const std::string> Context::warnings() const { return impl_->warnings; }
CacheMode Context::cache_mode() const { return impl_->options.cache_mode; }

std::size_t PartialsLimit(const DeviceSpec& device) {
  return device.kind == DeviceKind::kCuda ? std::size_t{1} << 30 : LaunchLimits{}.partials_bytes;
}

FeasibleOptions Context::feasible_options() const {
  FeasibleOptions options;
  options.providers = impl_->options.providers;
  options.quarantine = &quarantine();
  options.partials_bytes = PartialsLimit(device_spec());
  return options;
}

SessionOptions Context::DefaultSession() const {
  SessionOptions options;
  if (device_spec().kind == DeviceKind::kCpu) return options;
  options.kv = options.activations = DataType::kBF16;
  options.logits = DataType::kF32;
  options.chains = Chains::kRace;
  return options;
}

void Context::RefreshCache() {
  const std::lock_guard<std::mutex> lock(impl_->reading);
  impl_->caches.reset();
  impl_->report.reset();
}

Result<std::unique_ptr<MeasureWorker>> Context::StartWorker(const MeasurerOptions& measure,
                                                            const WorkerOptions& options) const {
  Result<std::string> build = BuildIdentity();
  if (!build) return Fail(build.error());
  WorkerSettings settings{impl_->options, measure};
  settings.context.device = std::string(device_name());
  settings.context.threads = executor().workers();
  worker::Terms terms{std::move(*build), WordsOf(settings), device_spec().ClassId()};
  return worker::StartWorker(options, std::move(terms));
}

std::unique_ptr<DeviceDispatch> Context::MakeDispatch(Precision activations, Guarantee guarantee,
                                                      const Pins* pins) const {
  DispatchOptions options;
  options.activations = activations;
  options.guarantee = guarantee;
  options.feasible = feasible_options();
  options.tuned = tuned();
  options.pins = pins;
  options.strict = impl_->options.cache_mode == CacheMode::kStrict;
  options.store = impl_->opened.store.get();
  return std::make_unique<DeviceDispatch>(*impl_->opened.kernels, *impl_->opened.device, options);
}

}  // namespace tilewright
