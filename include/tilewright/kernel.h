#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tilewright/device.h"
#include "tilewright/rejection.h"
#include "tilewright/result.h"
#include "tilewright/types.h"

namespace tilewright {

/// What a choice is based on, best first. A guess is never stored as a measurement.
enum class Provenance : std::uint8_t {
  kPinned,        ///< lock file or option
  kMeasured,      ///< exactly this problem was timed on this device
  kInterpolated,  ///< timed at another batch size; Choice::source_batch() gives it
  kModel,         ///< the analytic model ranked the feasible kernels
  kDefault,       ///< the reference kernel, because nothing else could run it
};
std::string_view ProvenanceName(Provenance provenance);

/// What to do about a problem without an exact record (see Choose).
enum class DispatchPolicy : std::uint8_t {
  kDefault = 0,  ///< records (exact, then interpolated), else the model; asks for no measurement
  kMeasure = 1,  ///< exact records only; asks for a measurement where there is none
  kReuse = 2,    ///< as kDefault, and interpolates from smaller batches too
  kAppend = 3,   ///< as kDefault, but asks for a measurement where there is no exact record
};

/// What a caller may require of results beyond correctness. Kernels declare what they guarantee;
/// the engine filters by it.
enum class Guarantee : std::uint8_t {
  kFastest,
  kDeterministic,   ///< bitwise equal from run to run
  kBatchInvariant,  ///< deterministic, and a row's result does not depend on the rest of its batch
};
std::string_view GuaranteeName(Guarantee guarantee);

/// How far a kernel may round the activations before multiplying them. kAuto allows int8 blocks for
/// quantised weights and bf16 for bf16 weights, as other engines do by default. Each allows what those
/// before it do.
enum class Precision : std::uint8_t {
  kAuto,
  kF32,
  kBF16,
  kI8,  ///< int8 with a scale for each 32 of a row
  /// int8 with one scale for a whole row of activations and one for a whole column of weights: the
  /// weights are rounded too. Less accurate than kI8; never without asking.
  kW8A8,
};

enum class Provider : std::uint8_t { kOwn, kVendor, kUser };
std::string_view ProviderName(Provider provider);

/// Properties of an implementation other than what it computes. Only `name` and `fingerprint` are
/// part of a record's identity.
struct KernelInfo {
  /// Stable id by the grammar in docs/kernel_ids.md, such as
  /// "gemm.f32_q4_1_f32.tn.avx512vnni.12x16x32.q4_1x16x4.i8".
  std::string name;
  std::string fingerprint;  ///< of the implementation; a record with another one is stale
  DeviceKind device = DeviceKind::kCpu;
  Provider provider = Provider::kOwn;
  std::uint32_t features = 0;    ///< Feature bits required
  bool deterministic = true;     ///< bitwise equal from run to run with any number of threads
  bool batch_invariant = false;  ///< a row's result does not depend on the rest of its batch
  /// Slow, supports every problem of its operation; chosen only if nothing else can run.
  bool reference = false;
  std::int64_t smem_bytes = 0;
  int registers = 0;
  int max_active_ctas = 1;  ///< occupancy
};

/// Launch parameters that a kernel defines itself, in addition to swizzle and splits: tiles,
/// threads, chunk, prefetch distance, raster, or a library's opaque algorithm (64 bytes hold a
/// cublasLtMatmulAlgo_t). Recorded, exported and pinned as the text that the kernel converts it to.
struct LaunchConfig {
  static constexpr std::size_t kWords = 8;
  std::array<std::int64_t, kWords> words{};

  auto operator<=>(const LaunchConfig&) const = default;
};

/// One word of a LaunchConfig, written as "name=value", and its range.
struct ConfigField {
  std::string_view name;
  std::int64_t least = 0, most = 0;
  bool optional = false;  ///< 0 is allowed too, and left out of the text
};

/// Base class of the kernels of every operation. Immutable after construction; all const members
/// may be called from many threads.
class KernelBase {
 public:
  virtual ~KernelBase() = default;
  const KernelInfo& info() const { return info_; }
  std::string_view name() const { return info_.name; }

  /// nullopt if `device` can run the kernel. Override to add to it, calling the base first.
  virtual std::optional<Rejection> CheckDevice(const DeviceSpec& device) const;

  /// nullopt if the kernel provides `guarantee`.
  std::optional<Rejection> CheckGuarantee(Guarantee guarantee) const;

  /// The words of this kernel's LaunchConfig, in order; empty if it uses none.
  virtual std::span<const ConfigField> ConfigFields() const { return {}; }
  /// "threads=8 chunk=64"; "" if ConfigFields is empty. A kernel with an opaque configuration
  /// overrides ConfigText and ParseConfig with a format of its own, without leading or trailing
  /// spaces.
  virtual std::string ConfigText(const LaunchConfig& config) const;
  virtual std::optional<LaunchConfig> ParseConfig(std::string_view text) const;

 protected:
  explicit KernelBase(KernelInfo info) : info_(std::move(info)) {}
  KernelInfo info_;
};

/// Whether a registry may add `kernel`: kInvalidArgument for a null kernel, one without a name, one
/// whose name is taken by `existing` (nullptr if there is none), or one with more ConfigFields than
/// a LaunchConfig has words.
Status CheckNewKernel(const KernelBase* kernel, const KernelBase* existing);

}  // namespace tilewright
