#include "device/cuda/nvml.h"

#include <dlfcn.h>

#include "core/env.h"
#include "core/text.h"

namespace tilewright::cuda {
namespace {

constexpr int kSuccess = 0, kInsufficientSize = 7;
constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr int kGpuSensor = 0;                  // nvmlTemperatureSensors_t

/// nvmlClocksEventReasons: why clocks are not the highest.
struct Limit {
  unsigned long long bit;
  const char* what;
  bool fault;  // of power or cooling
};
constexpr Limit kLimits[] = {
    {0x1, "idle", false},
    {0x2, "clocks set by the user", false},
    {0x4, "power cap", false},
    {0x8, "hardware slowdown", true},
    {0x10, "synchronised boost", false},
    {0x20, "heat", true},
    {0x40, "heat (hardware)", true},
    {0x80, "power brake", true},
    {0x100, "display clocks", false},
};

template <class F>
void Resolve(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
}

}  // namespace

Result<std::unique_ptr<Nvml>> Nvml::Open(const std::string& bus_id, const std::string& path) {
  const std::string file =
      !path.empty() ? path : GetEnv("TILEWRIGHT_NVML").value_or("libnvidia-ml.so.1");
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvml->library_ == nullptr)
    return Fail(ErrorCode::kUnavailable, Format("no NVML: {}", dlerror()));
  Api& api = nvml->api_;
  void* const from = nvml->library_;
  Resolve(from, "nvmlInit_v2", api.Init);
  Resolve(from, "nvmlShutdown", api.Shutdown);
  Resolve(from, "nvmlErrorString", api.ErrorString);
  Resolve(from, "nvmlDeviceGetHandleByPciBusId_v2", api.HandleByBusId);
  Resolve(from, "nvmlDeviceGetClockInfo", api.Clock);
  Resolve(from, "nvmlDeviceGetMaxClockInfo", api.MostClock);
  Resolve(from, "nvmlDeviceGetCurrentClocksThrottleReasons", api.Limits);
  Resolve(from, "nvmlDeviceGetPowerUsage", api.Power);
  Resolve(from, "nvmlDeviceGetEnforcedPowerLimit", api.PowerLimit);
  Resolve(from, "nvmlDeviceGetTemperature", api.Temperature);
  Resolve(from, "nvmlDeviceGetComputeRunningProcesses_v3", api.Processes);
  if (api.Init == nullptr || api.Shutdown == nullptr || api.ErrorString == nullptr ||
      api.HandleByBusId == nullptr) {
    return Fail(ErrorCode::kUnavailable, Format("{} is not NVML: it lacks nvmlInit_v2", file));
  }
  const auto failed = [&](const char* call, int result) {
    return Fail(ErrorCode::kUnavailable,
                Format("{}: {}: {} ({})", file, call, api.ErrorString(result), result));
  };
  if (const int result = api.Init(); result != kSuccess) return failed("nvmlInit_v2", result);
  nvml->begun_ = true;
  if (const int result = api.HandleByBusId(bus_id.c_str(), &nvml->device_); result != kSuccess)
    return failed("nvmlDeviceGetHandleByPciBusId_v2", result);
  return nvml;
}

Nvml::~Nvml() {
  if (begun_) api_.Shutdown();
  if (library_ != nullptr) dlclose(library_);
}

unsigned long long Nvml::LimitMask() const {
  unsigned long long mask = 0;
  if (api_.Limits == nullptr || api_.Limits(device_, &mask) != kSuccess) return 0;
  return mask;
}

bool Nvml::Slowed() const {
  const unsigned long long mask = LimitMask();
  for (const Limit& limit : kLimits) {
    if (limit.fault && (mask & limit.bit) != 0) return true;
  }
  return false;
}

GpuState Nvml::Read() const {
  GpuState state;
  const auto ask = [&](auto* function, auto... words) -> unsigned {
    unsigned value = 0;
    if (function == nullptr || function(device_, words..., &value) != kSuccess) return 0;
    return value;
  };
  state.sm_mhz = static_cast<int>(ask(api_.Clock, kSmClock));
  state.sm_most_mhz = static_cast<int>(ask(api_.MostClock, kSmClock));
  state.memory_mhz = static_cast<int>(ask(api_.Clock, kMemoryClock));
  state.watts = ask(api_.Power) * 1e-3;
  state.most_watts = ask(api_.PowerLimit) * 1e-3;
  state.celsius = static_cast<int>(ask(api_.Temperature, kGpuSensor));
  const unsigned long long mask = LimitMask();
  for (const Limit& limit : kLimits) {
    if ((mask & limit.bit) == 0) continue;
    state.limits.emplace_back(limit.what);
    state.slowed = state.slowed || limit.fault;
  }
  if (api_.Processes == nullptr) return state;
  unsigned count = 0;
  int result = api_.Processes(device_, &count, nullptr);
  std::vector<Process> found;
  // Between two calls another process may have come.
  for (int attempt = 0; attempt < 3 && result == kInsufficientSize; ++attempt) {
    count += 4;
    found.resize(count);
    result = api_.Processes(device_, &count, found.data());
  }
  if (result != kSuccess) return state;
  found.resize(count);
  for (const Process& process : found) {
    const bool told = process.bytes != ~0ull;
    state.processes.push_back({static_cast<int>(process.pid), told ? process.bytes : 0});
  }
  return state;
}

}  // namespace tilewright::cuda
