// A library that the CUDA driver loads into any program by CUDA_INJECTION64_PATH: it records when
// each kernel ran, by the GPU's clock, and writes them as a Chrome trace (chrome://tracing, Perfetto)
// to the file in TIMELINE_FILE when the program ends. Kernels of a graph are told apart, and may
// overlap as they do without it. Needs CUPTI, which is part of the CUDA toolkit.
//
//   CUDA_INJECTION64_PATH=$PWD/libtilewright_timeline.so TIMELINE_FILE=trace.json tilewright run ...

#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;

struct KernelRun {
  std::string name;
  std::uint64_t begin_ns, end_ns;
  std::int32_t grid[3], block[3];
  std::int32_t shared_bytes;
  std::uint32_t registers, stream;
};

std::mutex g_mutex;
std::vector<KernelRun>& Runs() {
  static auto* runs = new std::vector<KernelRun>;  // used by atexit
  return *runs;
}

// CUPTI is found when the program runs, as the driver itself is.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;

  bool Load() {
    void* library = nullptr;
    for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW);
    }
    if (library == nullptr) return false;
    const auto find = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find("cuptiActivityRegisterCallbacks", register_callbacks) &&
           find("cuptiActivityEnable", enable) && find("cuptiActivityGetNextRecord", next) &&
           find("cuptiActivityFlushAll", flush);
  }
};
Cupti g_cupti;

void CUPTIAPI GiveBuffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;
}

void CUPTIAPI TakeBuffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                         std::size_t filled) {
  CUpti_Activity* record = nullptr;
  const std::lock_guard<std::mutex> lock(g_mutex);
  while (g_cupti.next(buffer, filled, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    // The fields that are read here have their places in all later versions of the record.
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    Runs().push_back({kernel->name == nullptr ? "?" : kernel->name,
                      kernel->start,
                      kernel->end,
                      {kernel->gridX, kernel->gridY, kernel->gridZ},
                      {kernel->blockX, kernel->blockY, kernel->blockZ},
                      kernel->staticSharedMemory + kernel->dynamicSharedMemory,
                      kernel->registersPerThread,
                      kernel->streamId});
  }
  std::free(buffer);
}

void WriteTrace() {
  g_cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const char* path = std::getenv("TIMELINE_FILE");
  std::FILE* file = std::fopen(path == nullptr ? "timeline.json" : path, "w");
  if (file == nullptr) {
    std::perror("timeline");
    return;
  }
  const std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<KernelRun>& runs = Runs();
  std::sort(runs.begin(), runs.end(),
            [](const KernelRun& a, const KernelRun& b) { return a.begin_ns < b.begin_ns; });
  const std::uint64_t zero = runs.empty() ? 0 : runs.front().begin_ns;
  std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", file);
  const char* separator = "\n";
  for (const KernelRun& run : runs) {
    std::fprintf(
        file,
        "%s{\"name\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
        "\"args\":{\"grid\":[%d,%d,%d],\"block\":[%d,%d,%d],\"shared\":%d,\"registers\":%u}}",
        separator, run.name.c_str(), run.stream, static_cast<double>(run.begin_ns - zero) * 1e-3,
        static_cast<double>(run.end_ns - run.begin_ns) * 1e-3, run.grid[0], run.grid[1],
        run.grid[2], run.block[0], run.block[1], run.block[2], run.shared_bytes, run.registers);
    separator = ",\n";
  }
  std::fputs("\n]}\n", file);
  std::fclose(file);
}

}  // namespace

// Called by the driver's cuInit.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() {
  if (!g_cupti.Load() || g_cupti.register_callbacks(GiveBuffer, TakeBuffer) != CUPTI_SUCCESS ||
      g_cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    std::fputs("timeline: CUPTI is not there, or refuses to record kernels\n", stderr);
    return 0;
  }
  std::atexit(WriteTrace);
  return 1;
}
