#include "api/open_device.h"

#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "api/calibrate_gpu.h"
#include "core/text.h"
#include "engine/rates_file.h"
#include "tilewright/cuda_device.h"

namespace tilewright {
namespace {

/// Sets the rates of `spec` from the cache folder, or measures them where `options` says so.
/// Whether they were measured; `warnings` tells when they could not be kept.
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

/// What vendor kernels call, each library once: "onednn-2.6.3-...". Their fingerprints say it, in front of
/// a "+" if they have one.
std::string LibrariesOf(const Registry& gemm) {
  std::set<std::string> libraries;
  for (const Kernel* kernel : gemm.kernels()) {
    if (kernel->info().provider != Provider::kVendor) continue;
    const std::string& fingerprint = kernel->info().fingerprint;
    libraries.insert(fingerprint.substr(0, fingerprint.find('+')));
  }
  std::string text;
  for (const std::string& library : libraries)
    text.append(text.empty() ? "" : ", ").append(library);
  return text;
}

Result<OpenedDevice> OpenCpu(const ContextOptions& options, const std::string& folder,
                             Executor& executor, std::vector<std::string>& warnings) {
  Result<DeviceSpec> spec = DetectCpu();
  if (!spec) return Fail(spec.error());
  OpenedDevice opened;
  opened.name = "cpu";
  opened.kernels = MakeCpuKernels();
  opened.libraries = LibrariesOf(opened.kernels->gemm());
  spec->cores = executor.workers();
  static_cast<DeviceRates&>(*spec) = DefaultRates(spec->features, spec->cores);
  if (!folder.empty()) opened.calibrated = Calibrate(options, folder, executor, *spec, warnings);
  opened.device = MakeCpuDevice(std::move(*spec), {.executor = &executor});
  return opened;
}

/// A number of at most three digits; nullopt for any other text.
std::optional<std::uint32_t> NumberOf(std::string_view text) {
  constexpr std::size_t kMostDigits = 3;
  std::uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.size() > kMostDigits || error != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// "13.0" as cuDriverGetVersion says it: 13000. 0 for anything else, which is not compared.
std::uint32_t DriverNumber(std::string_view version) {
  const std::size_t dot = version.find('.');
  if (dot == std::string_view::npos) return 0;
  const std::optional<std::uint32_t> major = NumberOf(version.substr(0, dot));
  const std::optional<std::uint32_t> minor = NumberOf(version.substr(dot + 1));
  return major && minor ? *major * 1000 + *minor * 10 : 0;
}

Result<std::unique_ptr<ArtifactStore>> OpenStore(const ContextOptions& options,
                                                 const DeviceSpec& spec,
                                                 std::vector<std::string>& warnings) {
  ArtifactStoreOptions artifacts = options.artifacts;
  artifacts.mode = options.cache_mode;
  if (artifacts.root.empty() && !options.cache_dir.empty())
    artifacts.root = options.cache_dir + "/artifacts";
  artifacts.device.compute_capability = spec.compute_capability;
  artifacts.device.driver = DriverNumber(spec.driver);
  const ArtifactStoreOptions as_asked = artifacts;
  const std::string installed = InstalledBundle();
  if (!installed.empty()) artifacts.bundles.push_back(installed);
  Result<std::unique_ptr<ArtifactStore>> store =
      ArtifactStore::Open(AllKernelFamilies(), std::move(artifacts));
  if (store || installed.empty()) return store;
  // Nobody named the installed bundle, so that it cannot be used is no error.
  warnings.push_back("the installed bundle is not used: " + store.error().message);
  return ArtifactStore::Open(AllKernelFamilies(), as_asked);
}

/// What compiled or compiles the kernels of `spec`: the compiler of the first bundle that has some
/// for it, for which none is loaded, else the one that is here.
Result<std::string> CompilerOf(const ArtifactStore& store, const ArtifactStoreOptions& artifacts,
                               const DeviceSpec& spec) {
  std::vector<std::string> bundles = artifacts.bundles;
  if (const std::string installed = InstalledBundle(); !installed.empty())
    bundles.push_back(installed);
  std::string others;
  for (const std::string& path : bundles) {
    const auto bundle = Bundle::Open(path, artifacts.bundle_options);
    if (!bundle) continue;  // the store has said so
    const BundleCompat& compat = (*bundle)->compat();
    std::string archs;
    bool serves = false;
    for (const CudaArch& arch : compat.archs) {
      serves = serves || arch.RunsOn(spec.compute_capability);
      archs.append(archs.empty() ? "" : ", ").append(arch.ToString());
    }
    if (serves && !compat.compilers.empty()) return compat.compilers.back().ToString();
    others += Format("bundle {} has kernels for {}; ", path, archs);
  }
  const Result<CompilerIdentity> compiler = store.Compiler();
  if (compiler) return compiler->ToString();
  return Fail(
      compiler.error().code,
      Format("no bundle has kernels for {}, and there is no compiler for them: {}{}",
             NativeArch(spec.compute_capability).ToString(), others, compiler.error().message));
}

/// Measures the rates of an opened GPU, keeps them, and opens it again with them. Where they cannot
/// be measured, `warnings` says why and the rates stay those of its clocks.
Status MeasureRates(int ordinal, cuda::CudaDeviceOptions device_options, const std::string& folder,
                    OpenedDevice& opened, std::vector<std::string>& warnings) {
  const auto make = [&] { return cuda::MakeCudaDevice(ordinal, device_options); };
  // Measurements are judged by the rates of the clocks, not by those of an earlier calibration.
  device_options.rates.reset();
  Result<std::unique_ptr<Device>> plain = make();
  if (!plain) return Fail(plain.error());
  const Result<DeviceRates> rates = CalibrateGpu(**plain, *opened.kernels);
  if (!rates) {
    warnings.push_back(
        Format("device {}: its rates were not measured: {}", opened.name, rates.error().message));
    return {};
  }
  if (Status saved = SaveRates(folder, (*plain)->spec().ClassId(), *rates); !saved)
    warnings.push_back("the measured rates of this device are not kept: " + saved.error().message);
  device_options.rates = *rates;
  Result<std::unique_ptr<Device>> device = make();
  if (!device) return Fail(device.error());
  opened.device = std::move(*device);
  opened.calibrated = true;
  return {};
}

Result<OpenedDevice> OpenGpu(int ordinal, const ContextOptions& options, const std::string& folder,
                             Executor& executor, std::vector<std::string>& warnings) {
  OpenedDevice opened;
  opened.name = Format("cuda:{}", ordinal);
  const auto fail = [&](const Error& error) {
    return Fail(error.code, Format("device {}: {}", opened.name, error.message));
  };
  cuda::CudaDeviceOptions device_options{.library = options.cuda_library, .executor = &executor};
  if (!folder.empty() && options.cache_mode != CacheMode::kRefresh) {
    const Result<DeviceSpec> board = cuda::CudaDeviceSpec(ordinal, options.cuda_library);
    if (!board) return fail(board.error());
    device_options.rates = LoadRates(folder, board->ClassId());
  }
  opened.calibrated = device_options.rates.has_value();
  Result<std::unique_ptr<Device>> device = cuda::MakeCudaDevice(ordinal, device_options);
  if (!device) return fail(device.error());
  opened.device = std::move(*device);
  const DeviceSpec spec = opened.device->spec();
  Result<std::unique_ptr<ArtifactStore>> store = OpenStore(options, spec, warnings);
  if (!store) return fail(store.error());
  opened.store = std::move(*store);
  Result<std::unique_ptr<Kernels>> kernels =
      MakeCudaKernels(*opened.store, NativeArch(spec.compute_capability), VendorLibraries::kOfHere);
  if (!kernels) return fail(kernels.error());
  opened.kernels = std::move(*kernels);
  Result<std::string> compiler = CompilerOf(*opened.store, options.artifacts, spec);
  if (!compiler) return fail(compiler.error());
  opened.libraries = std::move(*compiler);
  const bool missing = options.calibration == Calibration::kMissing && !opened.calibrated;
  if (folder.empty() || WritesNothing(options.cache_mode) ||
      (options.calibration != Calibration::kAlways && !missing)) {
    return opened;
  }
  if (Status measured = MeasureRates(ordinal, device_options, folder, opened, warnings); !measured)
    return fail(measured.error());
  return opened;
}

/// The first GPU that works, else the CPU; the note says which and why.
Result<OpenedDevice> OpenBest(const ContextOptions& options, const std::string& folder,
                              Executor& executor, std::vector<std::string>& warnings) {
  std::string why_not;
  const auto add = [&why_not](const std::string& reason) {
    why_not.append(why_not.empty() ? "" : "; ").append(reason);
  };
  const Result<int> count = cuda::CudaDeviceCount(options.cuda_library);
  if (!count) {
    add("no GPU: " + count.error().message);
  } else if (*count == 0) {
    add("no GPU: the driver sees none");
  }
  for (int ordinal = 0; count && ordinal < *count; ++ordinal) {
    Result<OpenedDevice> gpu = OpenGpu(ordinal, options, folder, executor, warnings);
    if (gpu) {
      gpu->note = Format("{} ({}){}{}", gpu->name, gpu->device->spec().name,
                         why_not.empty() ? "" : ": ", why_not);
      return gpu;
    }
    add(gpu.error().message);
  }
  Result<OpenedDevice> cpu = OpenCpu(options, folder, executor, warnings);
  if (cpu) cpu->note = Format("cpu: {}", why_not);
  return cpu;
}

/// The number of "cuda:N"; nullopt for another word.
std::optional<int> CudaOrdinal(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::optional<std::uint32_t> number = NumberOf(name.substr(kPrefix.size()));
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

}  // namespace

bool WritesNothing(CacheMode mode) {
  return mode == CacheMode::kReadonly || mode == CacheMode::kOffline || mode == CacheMode::kStrict;
}

Result<OpenedDevice> OpenDevice(const ContextOptions& options, const std::string& folder,
                                Executor& executor, std::vector<std::string>& warnings) {
  if (options.device == "cpu") return OpenCpu(options, folder, executor, warnings);
  if (options.device == "auto") return OpenBest(options, folder, executor, warnings);
  if (const std::optional<int> ordinal = CudaOrdinal(options.device))
    return OpenGpu(*ordinal, options, folder, executor, warnings);
  return Fail(ErrorCode::kInvalidArgument,
              Format("device '{}': must be auto, cpu or cuda:N", Printable(options.device)));
}

}  // namespace tilewright
