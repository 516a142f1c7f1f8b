#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "artifacts.h"
#include "console.h"
#include "peak.h"
#include "report.h"
#include "tilewright/cuda_device.h"
#include "tilewright/gpu_state.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

enum class Health { kGood, kNote, kBad };

/// Findings in order, as lines and as JSON.
class Findings {
 public:
  void Add(Health health, const std::string& what, const std::string& value) {
    constexpr const char* kMarks[] = {"ok  ", "note", "BAD "};
    const auto index = static_cast<std::size_t>(health);
    text_ += fmt::format("{}  {:<22}", kMarks[index], what);
    // A list of places is printed below its first line.
    for (const char c : value)
      text_ += c == '\n' ? std::string("\n") + std::string(28, ' ') : std::string(1, c);
    text_ += "\n";
    bad_ = bad_ || health == Health::kBad;
    constexpr const char* kWords[] = {"ok", "note", "bad"};
    Report row;
    row.Set("health", kWords[index]).Set("what", what).Set("value", value);
    report_.Append("findings", std::move(row));
  }
  Report& report() { return report_; }
  const std::string& text() const { return text_; }
  bool bad() const { return bad_; }

 private:
  std::string text_;
  Report report_;
  bool bad_ = false;
};

void AddGpu(const Context& context, Findings& findings) {
  const DeviceSpec& device = context.device_spec();
  findings.Add(
      Health::kGood, std::string(context.device_name()),
      fmt::format("{}, compute capability {}.{}, {} multiprocessors, {} of shared memory a "
                  "block, L2 {}",
                  device.name, device.compute_capability / 10, device.compute_capability % 10,
                  device.sm_count, HumanBytes(static_cast<double>(device.smem_bytes)),
                  HumanBytes(static_cast<double>(device.l2_bytes))));
  findings.Add(Health::kGood, "kernels' compiler", context.scope().libraries);
  findings.report().Set("device", device.ClassId());
}

int OrdinalOf(const Context& context) {
  return std::atoi(std::string(context.device_name().substr(std::strlen("cuda:"))).c_str());
}

/// What the GPU is doing, where NVML is there to say so.
void AddGpuState(const Context& context, Findings& findings) {
  const Result<cuda::GpuState> state = cuda::ReadGpuState(OrdinalOf(context));
  if (!state) return;
  std::string limits;
  for (const std::string& limit : state->limits) limits += (limits.empty() ? "" : ", ") + limit;
  findings.Add(state->slowed ? Health::kNote : Health::kGood, "clocks",
               fmt::format("{} of {} MHz, memory {} MHz{}", state->sm_mhz, state->sm_most_mhz,
                           state->memory_mhz, limits.empty() ? "" : "; limited by: " + limits));
  findings.Add(Health::kGood, "power",
               fmt::format("{:.0f} of {:.0f} W, {} degrees Celsius", state->watts,
                           state->most_watts, state->celsius));
  std::string others;
  for (const auto& process : state->processes) {
    if (process.pid == getpid()) continue;
    others += fmt::format("{}{}", others.empty() ? "" : ", ", process.pid);
    if (process.bytes > 0)
      others += fmt::format(" ({})", HumanBytes(static_cast<double>(process.bytes)));
  }
  findings.Add(others.empty() ? Health::kGood : Health::kNote, "others on this GPU",
               others.empty() ? "no process" : "process " + others);
  Report report;
  report.Set("sm_mhz", state->sm_mhz)
      .Set("sm_most_mhz", state->sm_most_mhz)
      .Set("memory_mhz", state->memory_mhz)
      .Set("watts", state->watts)
      .Set("most_watts", state->most_watts)
      .Set("celsius", state->celsius)
      .Set("limits", limits)
      .Set("slowed", state->slowed);
  findings.report().Set("gpu_state", std::move(report));
}

/// "capped by TILEWRIGHT_ISA=avx2"; "" where nothing is.
std::string Cap() {
  const char* level = std::getenv("TILEWRIGHT_ISA");
  return level == nullptr || *level == '\0' ? ""
                                            : fmt::format("capped by TILEWRIGHT_ISA={}", level);
}

void AddInstructionSets(const DeviceSpec& device, Findings& findings) {
  const std::string cap = Cap();
  findings.Add(
      Health::kGood, "instruction sets",
      fmt::format("{}{}{}{}{}", IsaName(device.isa), device.Has(kFeatureAvx512Vnni) ? ", VNNI" : "",
                  device.Has(kFeatureAvx512Bf16) ? ", BF16" : "",
                  device.Has(kFeatureAmxInt8) ? ", AMX" : "", cap.empty() ? "" : " (" + cap + ")"));
  if (device.Has(kFeatureAmxTile)) {
    findings.Add(Health::kGood, "AMX", "available, and the system permits its use");
    return;
  }
  const DeviceSpec whole = cap.empty() ? device : DetectCpuCappedAt(Isa::kAmx);
  findings.Add(Health::kNote, "AMX",
               whole.Has(kFeatureAmxTile)  ? cap
               : whole.amx_refusal.empty() ? "this processor has none"
                                           : "refused: " + whole.amx_refusal);
}

/// Where the number of threads comes from.
std::string ThreadsText(int threads, int wanted) {
  const unsigned all = std::thread::hardware_concurrency();
  if (wanted == 0) return fmt::format("{} (affinity and quota; {} in the system)", threads, all);
  return fmt::format("{} (--threads; affinity and quota allow {}, {} in the system)", threads,
                     DefaultThreads(), all);
}

/// What the units of a processor reach, all threads together.
void AddArithmetic(const DeviceSpec& device, Executor& executor, Findings& findings) {
  constexpr struct {
    ArithmeticUnit unit;
    const char *name, *key, *measure;
  } kUnits[] = {{ArithmeticUnit::kAmxI8, "AMX int8", "amx_i8", "Gop/s"},
                {ArithmeticUnit::kI8, "int8", "i8", "Gop/s"},
                {ArithmeticUnit::kAmxBF16, "AMX bf16", "amx_bf16", "GFLOP/s"},
                {ArithmeticUnit::kBF16, "bf16", "bf16", "GFLOP/s"},
                {ArithmeticUnit::kF32, "f32", "f32", "GFLOP/s"}};
  std::string text;
  Report peaks;
  double i8 = 0, f32 = 0;
  for (const auto& one : kUnits) {
    std::optional<PeakRate> peak = MeasurePeak(device, executor, one.unit);
    // Without vectors there is nothing to measure, and every processor can do these two.
    if (!peak && one.unit == ArithmeticUnit::kI8) peak = BestPeak(device, executor, Precision::kI8);
    if (!peak && one.unit == ArithmeticUnit::kF32)
      peak = BestPeak(device, executor, Precision::kF32);
    if (!peak) continue;
    text += fmt::format("{}{} {:.0f} {} ({})", text.empty() ? "" : ", ", one.name, peak->giga_ops,
                        one.measure, peak->instruction);
    Report line;
    line.Set("gop_s", peak->giga_ops).Set("instruction", peak->instruction);
    peaks.Set(one.key, std::move(line));
    if (one.unit == ArithmeticUnit::kF32) f32 = peak->giga_ops;
    if (one.unit == ArithmeticUnit::kAmxI8 || (one.unit == ArithmeticUnit::kI8 && i8 == 0))
      i8 = peak->giga_ops;
  }
  findings.Add(Health::kGood, "arithmetic", text);
  findings.report().Set("i8_gop_s", i8).Set("f32_gflop_s", f32).Set("peaks", std::move(peaks));
}

/// `threads`: those that were asked for; 0: none.
void AddDevice(const DeviceSpec& device, Executor& executor, int threads, Findings& findings) {
  findings.Add(Health::kGood, "processor", device.name);
  AddInstructionSets(device, findings);
  findings.Add(Health::kGood, "threads", ThreadsText(device.cores, threads));
  const std::int64_t llc = MeasureLlcBytes(executor);
  findings.Add(Health::kGood, "caches",
               fmt::format("L1d {}, L2 {}, last level {} reported, {} measured",
                           HumanBytes(static_cast<double>(device.l1d_bytes)),
                           HumanBytes(static_cast<double>(device.l2_bytes)),
                           HumanBytes(static_cast<double>(device.llc_bytes)),
                           HumanBytes(static_cast<double>(llc))));
  const double read = MeasureReadBandwidth(executor);
  findings.Add(Health::kGood, "memory read", fmt::format("{:.1f} GB/s", read));
  AddArithmetic(device, executor, findings);
  findings.report()
      .Set("device", device.ClassId())
      .Set("isa", IsaName(device.isa))
      .Set("threads", device.cores)
      .Set("llc_bytes_reported", device.llc_bytes)
      .Set("llc_bytes_measured", llc)
      .Set("cold_bytes", ColdWeightBytes(llc, device.llc_bytes))
      .Set("read_gb_s", read);
}

std::string RatesText(const DeviceRates& rates, Report& report) {
  std::string text;
  ForEachRate(rates, [&](const char* name, double rate) {
    if (rate > 0) text += fmt::format("{}{} {:.4g}", text.empty() ? "" : ", ", name, rate);
    report.Set(name, rate);
  });
  return text;
}

/// The rates that times are predicted from, and where they come from; of a GPU that was measured
/// also those of its clocks.
void AddRates(const Context& context, Findings& findings) {
  Report rates;
  const std::string text = RatesText(context.device_spec(), rates);
  const char* source = context.calibrated() ? "measured"
                       : context.device_spec().kind == DeviceKind::kCuda
                           ? "of the board's clocks and units; tune and "
                             "doctor --calibrate measure them"
                           : "assumed; tune and doctor --calibrate "
                             "measure them";
  findings.Add(Health::kGood, "rates of the model", fmt::format("{} ({})", text, source));
  findings.report().Set("calibrated", context.calibrated()).Set("rates", std::move(rates));
  if (context.device_spec().kind != DeviceKind::kCuda || !context.calibrated()) return;
  const Result<DeviceSpec> board = cuda::CudaDeviceSpec(OrdinalOf(context));
  if (!board) return;
  Report peak;
  findings.Add(Health::kGood, "rates of its clocks", RatesText(*board, peak));
  findings.report().Set("rates_of_clocks", std::move(peak));
}

void AddMemory(Findings& findings) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    if (word != "MemAvailable:") continue;
    double kib = 0;
    file >> kib;
    findings.Add(Health::kGood, "memory", HumanBytes(kib * 1024) + " available");
    return;
  }
}

/// Whether the folder of `path`, or its nearest existing parent, is writable.
void AddCache(Context& context, Findings& findings) {
  Result<std::string> path = Records::DefaultPath();
  if (!path) {
    findings.Add(Health::kBad, "cache folder", path.error().message);
    return;
  }
  std::string folder = path->substr(0, path->find_last_of('/'));
  std::string there = folder;
  struct stat info {};
  while (there.size() > 1 && stat(there.c_str(), &info) != 0) {
    there = there.substr(0, there.find_last_of('/'));
    if (there.empty()) there = "/";
  }
  const bool folder_here = S_ISDIR(info.st_mode) && access(there.c_str(), W_OK | X_OK) == 0;
  findings.Add(
      folder_here ? Health::kGood : Health::kBad, "cache folder",
      folder_here ? fmt::format("{} ({})", folder, there == folder ? "writable" : "will be created")
                  : fmt::format("{}: {} is not a writable folder", folder, there));
  const Records::Stat stat_of = context.records().GetStat();
  const bool kept = stat_of.persistent || context.cache_mode() != CacheMode::kNormal;
  findings.Add(kept ? Health::kGood : Health::kBad, "tuning records",
               fmt::format("{} problems, {} measurements, {} quarantined{}", stat_of.problems,
                           stat_of.measurements, stat_of.quarantined,
                           kept ? "" : "; new tuning results are NOT kept"));
  if (stat_of.corrupt > 0) {
    findings.Add(Health::kNote, "damaged records", fmt::format("{}, ignored", stat_of.corrupt));
  }
  const BuildReport& built = context.cache_report();
  findings.Add(Health::kGood, "usable here",
               fmt::format("{} problems from {} measurements; {} of older kernel versions, {} of "
                           "other machines or libraries, {} of unknown kernels",
                           built.problems, built.measurements, built.stale, built.foreign,
                           built.unknown_kernel));
  for (const std::string& warning : context.warnings()) {
    findings.Add(Health::kBad, "records", warning);
  }
  findings.report().Set("cache_folder", folder);
}

void AddGpus(Findings& findings) {
  Result<int> count = cuda::CudaDeviceCount();
  if (!count) {
    findings.Add(Health::kNote, "GPU", count.error().message);
    return;
  }
  if (*count == 0) findings.Add(Health::kNote, "GPU", "the driver is installed, but sees none");
  for (int i = 0; i < *count; ++i) {
    Result<DeviceSpec> gpu = cuda::CudaDeviceSpec(i);
    findings.Add(gpu ? Health::kGood : Health::kNote, fmt::format("GPU {}", i),
                 gpu ? fmt::format("{}, compute capability {}.{}, {} multiprocessors, driver {}",
                                   gpu->name, gpu->compute_capability / 10,
                                   gpu->compute_capability % 10, gpu->sm_count, gpu->driver)
                     : gpu.error().message);
  }
}

/// The compiler of CUDA kernels, and what it has compiled. Neither is needed on the CPU, so a
/// missing one is not a problem.
void AddCompiler(const CommonOptions& common, Findings& findings) {
  Result<std::shared_ptr<const KernelCompiler>> nvrtc = LoadNvrtc();
  if (nvrtc) {
    findings.Add(Health::kGood, "NVRTC", (*nvrtc)->identity().ToString());
  } else {
    findings.Add(Health::kNote, "NVRTC", nvrtc.error().message);
  }
  constexpr CacheMode kLook = CacheMode::kReadonly;
  Result<std::unique_ptr<ArtifactStore>> store = OpenArtifacts(common, {}, &kLook);
  if (!store) {
    findings.Add(Health::kBad, "compiled kernels", store.error().message);
    return;
  }
  const ArtifactStore::Totals totals = (*store)->GetTotals();
  findings.Add(Health::kGood, "compiled kernels",
               fmt::format("{} in {}, {}{}", totals.entries, (*store)->root(),
                           HumanBytes(static_cast<double>(totals.bytes)),
                           totals.quarantined > 0
                               ? fmt::format("; {} damaged ones set aside", totals.quarantined)
                               : ""));
}

void AddLibraries(Context& context, Findings& findings) {
  findings.Add(Health::kGood, "tilewright", std::string(Version()));
  bool onednn = false;
  for (const LibraryVersion& library : LibraryVersions()) {
    findings.Add(Health::kGood, library.name, library.version);
    onednn = onednn || library.name == "oneDNN";
  }
  int total = 0, here = 0;
  context.kernels().ForEach([&](std::string_view, const KernelBase& kernel) {
    ++total;
    here += kernel.CheckDevice(context.device_spec()) ? 0 : 1;
    if (kernel.info().provider != Provider::kVendor) return;
    if (kernel.info().device != DeviceKind::kCuda) return;
    const std::optional<Rejection> no = kernel.CheckDevice(context.device_spec());
    findings.Add(no ? Health::kNote : Health::kGood, "cuBLASLt",
                 no ? no->ToString() : kernel.info().fingerprint + ", loaded when it is used");
  });
  findings.Add(Health::kGood, "kernels", fmt::format("{}, {} can run here", total, here));
  if (!onednn) {
    findings.Add(Health::kNote, "oneDNN", "its kernels are not included in this build");
  }
}

}  // namespace

int Doctor(const DoctorOptions& options) {
  const std::string& mode = options.common.cache_mode;
  if (options.calibrate && (mode == "readonly" || mode == "offline" || mode == "strict"))
    return Usage(fmt::format("--calibrate: --cache-mode {} stores nothing", mode), "doctor");
  Result<std::unique_ptr<Context>> context =
      MakeContext(options.common, options.calibrate ? Calibration::kAlways : Calibration::kStored);
  if (!context) return ExitFor(context.error());
  Findings findings;
  if ((*context)->device_spec().kind == DeviceKind::kCuda) {
    AddGpu(**context, findings);
    AddGpuState(**context, findings);
  } else {
    AddDevice((*context)->device_spec(), (*context)->executor(), options.common.threads, findings);
  }
  AddRates(**context, findings);
  AddMemory(findings);
  AddCache(**context, findings);
  AddLibraries(**context, findings);
  AddGpus(findings);
  AddCompiler(options.common, findings);
  if (options.common.json) {
    Out(findings.report().Text() + "\n");
  } else {
    Out(findings.text());
  }
  return Finish(findings.bad() ? kExitFailed : kExitOk);
}

}  // namespace tilewright::cli
