#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/artifact_store.h"
#include "tilewright/cache_mode.h"
#include "tilewright/device.h"
#include "tilewright/device_dispatch.h"
#include "tilewright/dispatch_cache.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/gguf.h"
#include "tilewright/kernels.h"
#include "tilewright/model.h"
#include "tilewright/records.h"
#include "tilewright/worker.h"

namespace tilewright {

/// "0.1.0"
std::string_view Version();

/// Adds every GEMM kernel of this library to `registry`; add your own with Registry::Add.
void AddAllGemm(Registry& registry);

/// Every kernel of the CPU device. Takes a few microseconds; add your own kernels, then share it.
std::unique_ptr<Kernels> MakeCpuKernels();

/// Vendor libraries of a GPU (cuBLASLt) when kernels are gathered.
enum class VendorLibraries : std::uint8_t {
  kAssumed,  ///< every kernel as a machine with all libraries has it: for decisions made elsewhere
  kOfHere,  ///< kernels of a library that this machine lacks are rejected, with where it was sought
};

/// The kernels of a GPU as candidates: one for each spec of the catalogs for `arch` (NativeArch of
/// the GPU's compute capability), compiled at run time, and those of vendor libraries. Nothing is
/// compiled and no library loaded before a kernel is bound; feasibility, predictions and `explain`
/// need no GPU, no compiler and no library. `store` must have been opened with AllKernelFamilies
/// and must outlive the kernels. kUnsupported for an architecture without kernels.
Result<std::unique_ptr<Kernels>> MakeCudaKernels(
    ArtifactStore& store, CudaArch arch, VendorLibraries vendor = VendorLibraries::kAssumed);

/// How many bytes of partial results (WorkspaceSize::partials) a context lets a launch on `device`
/// have. Weights of a large model are unpacked as a whole on a GPU: the largest, its output
/// projection, takes 1 GiB. A workspace is only as large as the chosen kernels need.
std::size_t PartialsLimit(const DeviceSpec& device);

/// A library that this one depends on, with the version that is loaded now.
struct LibraryVersion {
  std::string name, version;
};
std::vector<LibraryVersion> LibraryVersions();

/// What Context::Create does about the rates of the device (DeviceRates).
enum class Calibration : std::uint8_t {
  kStored,   ///< uses what is stored for this device class, else the defaults; measures nothing
  kMissing,  ///< measures and stores them unless they are stored: about 0.2 s, once
  kAlways,   ///< measures and stores them
};

struct ContextOptions {
  /// "cpu", "cuda:N", or "auto": the first GPU that works, else the CPU (Context::device_note says
  /// why).
  std::string device = "cpu";
  int threads = 0;               ///< 0: DefaultThreads(). Used only if `executor` is null
  Executor* executor = nullptr;  ///< the caller's own threads
  /// "": $TILEWRIGHT_CACHE_DIR, else $XDG_CACHE_HOME/tilewright, else ~/.cache/tilewright
  std::string cache_dir;
  CacheMode cache_mode = CacheMode::kNormal;
  /// Whose records answer, and how what is tuned here is measured; nullopt: PolicyFor(weight_bytes).
  std::optional<MeasurePolicy> policy;
  std::int64_t weight_bytes = 0;  ///< WeightBytes of the model that is to run; 0: unknown
  std::uint32_t providers = FeasibleOptions{}.providers;  ///< mask of Bit(Provider)
  /// Has no effect in the cache modes that write nothing (kReadonly, kOffline, kStrict). kRefresh
  /// treats stored rates as missing. Nothing is measured on a GPU: without stored rates its rates
  /// are computed from its clocks and units.
  Calibration calibration = Calibration::kStored;
  /// Where the kernels of a GPU are looked for and kept. `mode` is cache_mode, `device` that of the
  /// GPU; an empty `root` is cache_dir + "/artifacts". A bundle that is installed with the library,
  /// or lies beside it or the program as tilewright.twb, is searched after `bundles`.
  ArtifactStoreOptions artifacts;
  /// The driver's library; "": libcuda.so.1 (CudaDeviceOptions::library).
  std::string cuda_library;
};

/// Every kernel family of this library that is compiled at run time, for ArtifactStore::Open; add
/// your own with KernelFamilies::Add.
KernelFamilies AllKernelFamilies();

/// The kernels that a model needs.
struct ModelKernels {
  std::vector<KernelSpec> specs;
  std::vector<std::string> unserved;  ///< of each operation and weight type a problem without one
};
/// The kernels that sessions of this model may launch on GPUs of `arch`, in the catalogs' order. For
/// each problem of their passes (prompts up to 2,048 rows, batches up to 256, activations of bf16,
/// f16, f32, three contexts), the model's first choice and what it predicts to take at most 1.5 times
/// as long, on a large and a small board. Opens the file again, reads no weight. Errors:
/// Model::Load's; kUnsupported for an architecture without kernels.
Result<ModelKernels> KernelsOfModel(const GgufFile& file, CudaArch arch);

/// What was written.
struct BundleReport {
  std::size_t kernels = 0;
  std::size_t compiled = 0;  ///< of `kernels`, compiled now; the others were in the store
  std::size_t left_out = 0;  ///< older artifacts of kernels that are in the bundle
  std::uint64_t bytes = 0;
  std::string digest;  ///< Bundle::Digest
};

/// Compiles every kernel (or finds it in the store) and writes them as one bundle file, atomically
/// at the end. If a kernel fails, nothing is written; the error names the first and gives the
/// number of failures.
Result<BundleReport> WriteBundle(ArtifactStore& store, std::span<const KernelSpec> specs,
                                 const std::string& path, const BundleWriteOptions& options,
                                 const CompileControl& control = {});

/// Writes the contents of the user's folder as a bundle. If there are several artifacts of one
/// kernel (made by different compilers), only the one used last is written.
Result<BundleReport> ExportArtifacts(const ArtifactStore& store, const std::string& path,
                                     const BundleWriteOptions& options);

struct ArtifactImport {
  std::size_t added = 0, known = 0;
  std::vector<std::string> troubles;  ///< for a bundle: what was omitted, and why
};
/// Puts the artifacts of a bundle, or of one entry file, into the user's folder. With
/// `trusted_keys`, accepts only a bundle signed by one of them, since an entry has no signature.
/// Errors: those of Bundle::Open and DecodeArtifact; kInvalidArgument for a file that is neither.
Result<ArtifactImport> ImportArtifacts(ArtifactStore& store, const std::string& path,
                                       const Bundle::OpenOptions& options = {});

/// What a program usually needs for one device: the device, its kernels, the records of earlier
/// tuning and the cache built from them. A process may have several. If the records cannot be used
/// (unreadable, read-only, of a newer version), the context works without them and reports it once
/// in warnings(). Immutable after Create, except for RefreshCache; share it between threads that
/// each make their own dispatch.
class Context {
 public:
  /// Errors: kInvalidArgument for a device other than "auto", "cpu" and "cuda:N", and for a GPU
  /// beyond the last; kUnavailable without a driver, with one that is too old, without a compiler
  /// and a bundle for a GPU's kernels, and for a TILEWRIGHT_ISA that this machine lacks;
  /// kUnsupported for a GPU that no kernel is made for.
  static Result<std::unique_ptr<Context>> Create(const ContextOptions& options);
  ~Context();

  Device& device() const;
  /// "cpu", "cuda:0".
  std::string_view device_name() const;
  /// With the device "auto": which it is, and why no GPU before it; else "".
  const std::string& device_note() const;
  /// Where the kernels of a GPU come from; nullptr on the CPU.
  ArtifactStore* artifacts() const;
  const DeviceSpec& device_spec() const;
  /// Whether the rates of device_spec() were measured, now or earlier.
  bool calibrated() const;
  Kernels& kernels();
  const Kernels& kernels() const;
  Executor& executor() const;
  Records& records();
  /// What the records say about every operation, also in CacheMode::kRefresh. Used by explain and
  /// quarantine().
  const DispatchCaches& caches() const;
  /// The tuned GEMMs; empty in CacheMode::kRefresh, which ignores recorded times.
  const DispatchCache& cache() const;
  /// The tuning results that dispatches use: those of the operations that have records; none in
  /// CacheMode::kRefresh.
  TunedKernels tuned() const;
  const Quarantine& quarantine() const;
  const RecordScope& scope() const;
  const BuildReport& cache_report() const;
  FeasibleOptions feasible_options() const;
  std::span<const std::string> warnings() const;
  CacheMode cache_mode() const;

  /// What a session on this device has unless its user wants something else: activations and KV
  /// cache of bf16, logits of f32 and chains of products in a race on a GPU, SessionOptions{} on the CPU.
  SessionOptions DefaultSession() const;

  /// Rebuilds caches() from the records, after tuning. No dispatch made before may be in use.
  void RefreshCache();

  /// A worker process that measures on this context's device as MakeMeasurer would here, with as
  /// many threads. Errors: kUnavailable if there is no worker program or it cannot be started;
  /// kUnsupported, naming both builds, if it belongs to another build of this library.
  Result<std::unique_ptr<MeasureWorker>> StartWorker(const MeasurerOptions& measure = {},
                                                     const WorkerOptions& options = {}) const;

  /// A dispatch with this context's device, kernels and records; the context must outlive it.
  std::unique_ptr<DeviceDispatch> MakeDispatch(Precision activations = Precision::kAuto,
                                               Guarantee guarantee = Guarantee::kFastest,
                                               const Pins* pins = nullptr) const;

 private:
  struct Impl;
  explicit Context(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct MeasureServerOptions {
  /// What the parent does not send: a compiler, options of bundles. The rest it overwrites.
  ContextOptions context;
  /// Kernels of your own, by the names and fingerprints that the parent has them under. A worker
  /// without them leaves them to the parent, which then measures them in its own process.
  std::function<Status(Kernels& kernels, Device& device)> add_kernels;
};
/// The main function of a worker program: answers the requests of Context::StartWorker on standard
/// input and output until the parent closes them or dies. Returns the exit code; leave with _exit,
/// since after a fault on a GPU the driver's exit handlers may hang. Takes over both files, dumps no
/// core, and starts a thread that ends the process if it outlives its parent.
int ServeMeasurements(const MeasureServerOptions& options = {});

}  // namespace tilewright
