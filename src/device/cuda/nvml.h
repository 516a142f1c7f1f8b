#pragma once

#include <memory>
#include <string>

#include "tilewright/gpu_state.h"

namespace tilewright::cuda {

/// NVML, opened for one GPU. NVIDIA gives no header without its toolkit, so the few functions are
/// declared here, with the names and numbers that its reference gives them. Any thread.
class Nvml {
 public:
  /// `bus_id`: "00000000:18:00.0". `path`: the library; "": TILEWRIGHT_NVML, else
  /// libnvidia-ml.so.1. kUnavailable where it cannot be loaded, begun or does not know the GPU.
  static Result<std::unique_ptr<Nvml>> Open(const std::string& bus_id,
                                            const std::string& path = "");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  GpuState Read() const;
  /// GpuState::slowed alone, in some microseconds.
  bool Slowed() const;

 private:
  using Handle = struct NvmlDevice*;
  struct Process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute_instance;
  };
  struct Api {
    int (*Init)() = nullptr;
    int (*Shutdown)() = nullptr;
    const char* (*ErrorString)(int) = nullptr;
    int (*HandleByBusId)(const char*, Handle*) = nullptr;
    // What older libraries may lack.
    int (*Clock)(Handle, int kind, unsigned* mhz) = nullptr;
    int (*MostClock)(Handle, int kind, unsigned* mhz) = nullptr;
    int (*Limits)(Handle, unsigned long long* mask) = nullptr;
    int (*Power)(Handle, unsigned* milliwatts) = nullptr;
    int (*PowerLimit)(Handle, unsigned* milliwatts) = nullptr;
    int (*Temperature)(Handle, int sensor, unsigned* celsius) = nullptr;
    int (*Processes)(Handle, unsigned* count, Process* found) = nullptr;
  };
  Nvml() = default;
  unsigned long long LimitMask() const;

  void* library_ = nullptr;
  Api api_;
  bool begun_ = false;
  Handle device_ = nullptr;
};

}  // namespace tilewright::cuda
