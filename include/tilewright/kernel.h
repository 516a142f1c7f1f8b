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

/// Who answered a choice, best first. A guess is never stored as a measurement.
enum class Provenance : std::uint8_t {
  kPinned,        ///< lock file or option
  kMeasured,      ///< this very problem was timed on this device
  kInterpolated,  ///< timed at a neighbouring batch size; the choice names it
  kModel,         ///< the analytic model ranked the feasible kernels
  kDefault,       ///< the reference kernel, because nothing else could run it
};
std::string_view ProvenanceName(Provenance provenance);

/// What to do about a problem without a record.
enum class DispatchPolicy : std::uint8_t {
  kDefault = 0,  ///< records (exact, then interpolated), else model; never measures
  kMeasure = 1,  ///< measure unless an exact record exists
  kReuse = 2,    ///< records only, exact or interpolated; else model
  kAppend = 3,  ///< measure and reuse: measure what has no exact record, keep every record there is
};

/// What a caller may ask of the numbers beyond being right. Kernels declare what they keep; the
/// engine filters.
enum class Guarantee : std::uint8_t {
  kFastest,
  kDeterministic,   ///< bitwise equal run to run
  kBatchInvariant,  ///< and a row's result does not depend on the batch it rides in
};
std::string_view GuaranteeName(Guarantee guarantee);

/// How far a kernel may round the activations on the way into its multiplier. kAuto allows int8
/// blocks for quantised weights and bf16 for bf16 weights: what every peer does by default.
enum class Precision : std::uint8_t { kAuto, kF32, kBF16, kI8 };

enum class Provider : std::uint8_t { kOwn, kVendor, kUser };
std::string_view ProviderName(Provider provider);

/// What is known of an implementation beyond what it computes. Not part of any key except
/// `fingerprint`.
struct KernelInfo {
  std::string name;         ///< stable id by the grammar in docs/kernel_ids.md, e.g.
                            ///< "gemm.f32_q4_1_f32.tn.avx512vnni.12x16x32.q4_1x16x4.i8"
  std::string fingerprint;  ///< of the implementation; a record made with another one is stale
  DeviceKind device = DeviceKind::kCpu;
  Provider provider = Provider::kOwn;
  std::uint32_t features = 0;    ///< Feature bits required
  bool deterministic = true;     ///< bitwise equal run to run with any number of threads
  bool batch_invariant = false;  ///< a row's result does not depend on the batch it rides in
  bool reference =
      false;  ///< slow, takes everything of its kind, chosen only when nothing else can run
  std::int64_t smem_bytes = 0;
  int registers = 0;
  int max_active_ctas = 1;  ///< occupancy
};

/// Launch parameters that a kernel defines for itself, beside swizzle and splits: tiles, threads,
/// chunk, prefetch distance, raster, or the opaque algorithm of a library (64 bytes hold a
/// cublasLtMatmulAlgo_t). Recorded, exported and pinned by the text the kernel makes of it.
struct LaunchConfig {
  static constexpr std::size_t kWords = 8;
  std::array<std::int64_t, kWords> words{};

  auto operator<=>(const LaunchConfig&) const = default;
};

/// One word of a LaunchConfig as it is written: "name=value".
struct ConfigField {
  std::string_view name;
  std::int64_t least = 0, most = 0;
  bool optional = false;  ///< 0 is allowed too, and left out of the text
};

/// Base of every kernel of every operation. Immutable after construction; all const members may be
/// called from many threads.
class KernelBase {
 public:
  virtual ~KernelBase() = default;
  const KernelInfo& info() const { return info_; }
  std::string_view name() const { return info_.name; }

  /// nullopt when `device` can run it.
  std::optional<Rejection> CheckDevice(const DeviceSpec& device) const;

  /// nullopt when the kernel keeps `guarantee`.
  std::optional<Rejection> CheckGuarantee(Guarantee guarantee) const;

  /// The words of this kernel's LaunchConfig, in order; empty when it has none.
  virtual std::span<const ConfigField> ConfigFields() const { return {}; }
  /// "threads=8 chunk=64"; "" where ConfigFields is empty. A kernel whose configuration is opaque
  /// overrides both and writes it in its own way, without spaces at the ends.
  virtual std::string ConfigText(const LaunchConfig& config) const;
  virtual std::optional<LaunchConfig> ParseConfig(std::string_view text) const;

 protected:
  explicit KernelBase(KernelInfo info) : info_(std::move(info)) {}
  KernelInfo info_;
};

/// What a registry takes: kInvalidArgument for a null kernel, one without a name, or one whose name
/// `standing` has already.
Status CheckNewKernel(const KernelBase* kernel, const KernelBase* standing);

}  // namespace tilewright
