#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/paths.h"
#include "core/text.h"
#include "engine/rates_file.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

bool WritesNothing(CacheMode mode) {
  return mode == CacheMode::kReadonly || mode == CacheMode::kOffline || mode == CacheMode::kStrict;
}

/// Sets the rates of `spec` from the cache folder, or measures them where `options` says so.
/// Returns whether they were measured; adds a warning if they could not be stored.
bool Calibrate(const ContextOptions& options, const std::string& folder, Executor& executor,
               DeviceSpec& spec, std::vector<std::string>& warnings) {
  const bool ignores =
      options.calibration == Calibration::kAlways || options.cache_mode == CacheMode::kRefresh;
  if (!ignores) {
    if (const auto stored = LoadRates(folder, spec.ClassId())) {
      static_cast<DeviceRates&>(spec) = *stored;
      return true;
    }
  }
  if (options.calibration == Calibration::kStored || WritesNothing(options.cache_mode))
    return false;
  static_cast<DeviceRates&>(spec) = CalibrateRates(spec, executor);
  if (Status saved = SaveRates(folder, spec.ClassId(), spec); !saved)
    warnings.push_back("the measured rates of this device are not kept: " + saved.error().message);
  return true;
}

/// What vendor kernels call, each library once: "onednn-2.6.3-...". Their fingerprints say it.
std::string VendorLibraries(const Registry& gemm) {
  std::set<std::string> libraries;
  for (const Kernel* kernel : gemm.kernels()) {
    if (kernel->info().provider == Provider::kVendor) libraries.insert(kernel->info().fingerprint);
  }
  std::string text;
  for (const std::string& library : libraries)
    text.append(text.empty() ? "" : ", ").append(library);
  return text;
}

/// The CPU for "auto" and "cpu"; models run on nothing else yet.
Status CheckDeviceName(std::string_view name) {
  if (name == "auto" || name == "cpu") return {};
  std::string_view number = name;
  const bool cuda = number.starts_with("cuda:");
  if (cuda) number.remove_prefix(5);
  const bool digits = !number.empty() && number.size() < 4 &&
                      number.find_first_not_of("0123456789") == std::string_view::npos;
  if (cuda && digits) {
    return Fail(ErrorCode::kUnavailable,
                Format("device {}: running models on a GPU is not supported yet; use cpu", name));
  }
  return Fail(ErrorCode::kInvalidArgument,
              Format("device '{}': must be auto, cpu or cuda:N", Printable(name)));
}

}  // namespace

struct Context::Impl {
  explicit Impl(Records opened) : kernels(MakeCpuKernels()), records(std::move(opened)) {}

  ContextOptions options;
  std::unique_ptr<Kernels> kernels;
  DispatchCache ignored{std::vector<Kernel*>{}};  // what refresh sees of the times
  std::unique_ptr<Executor> pool;
  Executor* executor = nullptr;
  std::unique_ptr<Device> device;
  bool calibrated = false;
  Records records;
  RecordScope scope;
  std::mutex reading;  // guards all below: they are made when first asked for
  std::unique_ptr<const DispatchCaches> caches;
  std::optional<BuildReport> report;

  // What the records say, and in the mode that ignores their times what they say of failures.
  const DispatchCaches& Caches() {
    const std::lock_guard<std::mutex> lock(reading);
    if (caches == nullptr) caches = DispatchCaches::Over(records, *kernels, scope);
    return *caches;
  }
  std::vector<std::string> warnings;
};

Result<std::unique_ptr<Context>> Context::Create(const ContextOptions& options) {
  if (Status status = CheckDeviceName(options.device); !status) return Fail(status.error());
  Result<DeviceSpec> spec = DetectCpu();
  if (!spec) return Fail(spec.error());
  if (options.threads < 0 || options.threads > 4096) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("threads = {}, must be 0 to 4096", options.threads));
  }
  std::vector<std::string> warnings;
  const Result<std::string> folder =
      options.cache_dir.empty() ? CacheDir() : Result<std::string>(options.cache_dir);
  if (!folder) warnings.push_back(folder.error().message);
  Records::Options records_options;
  records_options.read_only = WritesNothing(options.cache_mode);
  auto impl = std::make_unique<Impl>(
      Records::Open(folder ? *folder + "/records.sqlite" : "", records_options));
  impl->options = options;
  impl->executor = options.executor;
  if (impl->executor == nullptr) {
    const int threads = options.threads > 0 ? options.threads : DefaultThreads();
    impl->pool = MakeThreadPool(threads);
    impl->executor = impl->pool.get();
  }
  spec->cores = impl->executor->workers();
  if (folder) impl->calibrated = Calibrate(options, *folder, *impl->executor, *spec, warnings);
  impl->scope =
      RecordScope{spec->ClassId(), VendorLibraries(impl->kernels->gemm()), options.policy};
  impl->device = MakeCpuDevice(std::move(*spec), {.executor = impl->executor});
  for (const std::string& warning : impl->records.warnings()) warnings.push_back(warning);
  impl->warnings = std::move(warnings);
  std::unique_ptr<Context> context(new Context(std::move(impl)));
  return context;
}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;

Device& Context::device() const { return *impl_->device; }
const DeviceSpec& Context::device_spec() const { return impl_->device->spec(); }
bool Context::calibrated() const { return impl_->calibrated; }
Kernels& Context::kernels() { return *impl_->kernels; }
const Kernels& Context::kernels() const { return *impl_->kernels; }
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
      impl_->report = CountRecords(impl_->records, *impl_->kernels, impl_->scope);
  }
  return *impl_->report;
}
std::span<const std::string> Context::warnings() const { return impl_->warnings; }
CacheMode Context::cache_mode() const { return impl_->options.cache_mode; }

FeasibleOptions Context::feasible_options() const {
  FeasibleOptions options;
  options.providers = impl_->options.providers;
  options.quarantine = &quarantine();
  return options;
}

void Context::RefreshCache() {
  const std::lock_guard<std::mutex> lock(impl_->reading);
  impl_->caches.reset();
  impl_->report.reset();
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
  return std::make_unique<DeviceDispatch>(*impl_->kernels, *impl_->device, options);
}

}  // namespace tilewright
