// A libnvidia-ml for tests: one GPU, where the fake driver's first one sits. FAKE_NVML_LIMITS is the mask of what limits its
// clocks.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

int begun = 0;
int the_gpu = 0;

struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned instance, compute_instance;
};

int Answer(void* gpu, unsigned* value, unsigned answer) {
  if (begun == 0) return 1;
  if (gpu != &the_gpu) return 2;
  *value = answer;
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++begun;
  return 0;
}
int nvmlShutdown() { return begun-- > 0 ? 0 : 1; }
const char* nvmlErrorString(int result) { return result == 6 ? "Not Found" : "some error"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** gpu) {
  if (begun == 0) return 1;
  if (std::strcmp(bus_id, "00000000:18:00.0") != 0) return 6;
  *gpu = &the_gpu;
  return 0;
}
int nvmlDeviceGetClockInfo(void* gpu, int kind, unsigned* mhz) {
  return Answer(gpu, mhz, kind == 1 ? 1755 : 3201);
}
int nvmlDeviceGetMaxClockInfo(void* gpu, int, unsigned* mhz) { return Answer(gpu, mhz, 1980); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* mask) {
  const char* limits = std::getenv("FAKE_NVML_LIMITS");
  unsigned value = 0;
  const int answered = Answer(
      gpu, &value, limits != nullptr ? static_cast<unsigned>(std::strtoul(limits, nullptr, 0)) : 0);
  *mask = value;
  return answered;
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* mw) { return Answer(gpu, mw, 412300); }
int nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* mw) { return Answer(gpu, mw, 700000); }
int nvmlDeviceGetTemperature(void* gpu, int, unsigned* celsius) { return Answer(gpu, celsius, 46); }
/// This process, and another that does not tell its memory.
int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, Process* found) {
  unsigned room = *count;
  if (const int answered = Answer(gpu, count, 2); answered != 0) return answered;
  if (room < 2) return 7;
  found[0] = {static_cast<unsigned>(getpid()), 512ull << 20, 0, 0};
  found[1] = {4242, ~0ull, 0, 0};
  return 0;
}

}  // extern "C"
