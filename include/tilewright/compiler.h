#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tilewright/result.h"

namespace tilewright {

/// The exact identity of a compiler: two installations with equal identities produce equal bytes.
struct CompilerIdentity {
  std::string backend;   ///< "nvrtc"
  std::string version;   ///< "13.0"
  std::string build_id;  ///< the library's ELF build id in hex, else "sha256:..." of the file
  std::string builtins_version;   ///< of libnvrtc-builtins, from its file name: "13.0"
  std::string builtins_build_id;  ///< as build_id

  auto operator<=>(const CompilerIdentity&) const = default;
  /// "nvrtc 13.0 (65be0db3, builtins 13.0 08d17e32)": the first eight digits of each id.
  std::string ToString() const {
    const auto brief = [](const std::string& id) {
      return id.substr(0, id.starts_with("sha256:") ? 15 : 8);
    };
    return backend + " " + version + " (" + brief(build_id) + ", builtins " + builtins_version +
           " " + brief(builtins_build_id) + ")";
  }
};

/// Resource usage as the compiler reported it, per thread or per CTA. Spills are known only where
/// the compiler's log could be parsed or the machine code rules them out; an unknown count is never
/// taken to be 0.
struct ResourceUsage {
  std::uint32_t registers = 0;
  std::uint32_t static_smem_bytes = 0;
  std::uint32_t constant_bytes = 0;                  ///< parameters included
  std::uint32_t stack_bytes = 0;                     ///< with everything it calls
  std::optional<std::uint32_t> spill_store_bytes{};  ///< with the functions that were not inlined
  std::optional<std::uint32_t> spill_load_bytes{};
  std::uint32_t barriers = 0;

  auto operator<=>(const ResourceUsage&) const = default;
  /// Stores plus loads; nullopt where either is unknown.
  std::optional<std::uint64_t> SpillBytes() const {
    if (!spill_store_bytes || !spill_load_bytes) return std::nullopt;
    return std::uint64_t{*spill_store_bytes} + *spill_load_bytes;
  }
};

/// A source file as data: CUDA C++ passed to the compiler under a virtual name. The views must
/// outlive every user (the embedded sources are static).
struct SourceFile {
  std::string_view name;  ///< "ops/gemm/cuda/gemm_mma.cu": as #include spells it; not a real path
  std::string_view text;
};

/// One translation unit to compile.
struct CompileJob {
  std::string name;  ///< virtual name of the unit, the same on every machine
  std::string_view source;
  std::span<const SourceFile> headers;   ///< by virtual name
  std::span<const std::string> options;  ///< complete: "--gpu-architecture=sm_90a", ...
  std::string symbol;                    ///< the kernel whose resources are reported
};

struct CompileOutput {
  std::string cubin;
  std::string ptx;  ///< without the trailing NUL
  std::string log;  ///< warnings and resources; contains no times, so it is reproducible
  ResourceUsage resources;
  double compile_ms = 0;
};

/// Why a compilation produced no output. Only a deterministic failure (the compiler read the source
/// and rejected it) may be remembered; a crash, an exhausted resource or a cancellation may not.
struct CompileFailure {
  bool deterministic = false;
  Error error;      ///< kUnsupported for a rejected source, kCancelled, kOutOfMemory, kInternal ...
  std::string log;  ///< the compiler's log, verbatim
};

/// Polled while compiling, by one thread at a time; returning true cancels.
using CancelFn = std::function<bool()>;

/// A compiler for CUDA C++. Implementations are safe to call from several threads.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  virtual const CompilerIdentity& identity() const = 0;
  /// Depends on nothing but `job`: touches no file and reads no environment variable.
  virtual tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                              const CancelFn& cancelled) const = 0;
};

/// Where to look for NVRTC.
struct NvrtcSearch {
  /// A file, or a folder that holds libnvrtc.so.*; "" means the search order of LoadNvrtc.
  std::string path;
};

/// Loads NVRTC 12.9 or newer with dlopen; a given file is loaded once per process and never
/// unloaded. Compiles nothing. Search order: `search.path`; $TILEWRIGHT_NVRTC (file or folder); the
/// loader's own path; $CUDA_HOME and $CUDA_PATH (lib64, lib); /usr/local/cuda and
/// /usr/local/cuda-*, newest first; the wheels nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12 of a
/// Python installation (site-packages/nvidia/*/lib). A `search.path` or $TILEWRIGHT_NVRTC that does
/// not lead to NVRTC is an error; it is not skipped. kUnavailable lists every place that was tried
/// and why it was rejected. Reads the environment, so no other thread may call setenv meanwhile.
///
/// Several versions can be loaded side by side. Compile fails (kUnavailable) while an undocumented
/// environment variable that changes NVRTC's output, such as NVRTC_APPEND_FLAGS, is set.
Result<std::shared_ptr<const KernelCompiler>> LoadNvrtc(const NvrtcSearch& search = {});

}  // namespace tilewright
