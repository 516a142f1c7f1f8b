#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tilewright/executor.h"
#include "tilewright/result.h"

namespace tilewright {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

/// Instruction-set levels of the CPU device, each containing those before it. kAvx512 means F, BW,
/// DQ, VL and CD; VNNI and BF16 are separate feature bits that come with it where the processor has
/// them.
enum class Isa : std::uint8_t { kScalar, kAvx2, kAvx512, kAmx };
std::string_view IsaName(Isa isa);

/// Feature bits a kernel may require (KernelInfo::features). A bit is set only if CPUID has it
/// *and* XCR0 saves its registers.
enum Feature : std::uint32_t {
  kFeatureAvx2 = 1u << 0,  ///< AVX2, FMA, F16C, BMI2
  kFeatureAvx512 = 1u << 1,
  kFeatureAvx512Vnni = 1u << 2,
  kFeatureAvx512Bf16 = 1u << 3,
  kFeatureAmxTile = 1u << 4,
  kFeatureAmxInt8 = 1u << 5,
  kFeatureAmxBf16 = 1u << 6,
};

/// How fast a device is: what the predicted times of kernels are made of. GB/s (1e9), GFLOP/s and
/// Gop/s; a multiplication and the addition that follows count as two. Arithmetic of a CPU is that
/// of one thread while all of them work, with the best instruction of its level; that of a GPU is
/// of the whole board. 0 means that the device has no such unit, or may not use it. The values
/// given here apply until the device is calibrated.
struct DeviceRates {
  double read_gb_s = 12;        ///< memory reads by all threads together
  double f32_gflop_s = 50;      ///< f32 FMA
  double bf16_gflop_s = 0;      ///< bf16 products, f32 sums: AVX-512 BF16; tensor cores of a GPU
  double i8_gop_s = 100;        ///< int8 products, int32 sums: VNNI or AVX2; tensor cores of a GPU
  double amx_bf16_gflop_s = 0;  ///< the same on the AMX unit of a CPU
  double amx_i8_gop_s = 0;

  bool operator==(const DeviceRates&) const = default;
};

/// Calls f(name, rate reference) for every rate. `Rates` is DeviceRates or const DeviceRates.
template <class Rates, class F>
void ForEachRate(Rates& rates, F&& f) {
  f("read_gb_s", rates.read_gb_s);
  f("f32_gflop_s", rates.f32_gflop_s), f("bf16_gflop_s", rates.bf16_gflop_s);
  f("i8_gop_s", rates.i8_gop_s);
  f("amx_bf16_gflop_s", rates.amx_bf16_gflop_s), f("amx_i8_gop_s", rates.amx_i8_gop_s);
}

/// The rates of a CPU that was never calibrated: those of DeviceRates, a guess for each unit that
/// `features` adds, and what `threads` threads of a desktop or a server read together.
DeviceRates DefaultRates(std::uint32_t features, int threads);

/// A device as a value: every decision is a function of this, so a decision for a machine that is
/// not here can be made and tested anywhere. Sizes in bytes. Fields of the other kind stay zero.
struct DeviceSpec : DeviceRates {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;  ///< processor or board name as the system reports it
  std::uint32_t features = 0;
  Isa isa = Isa::kScalar;  ///< highest level in `features` after the cap of TILEWRIGHT_ISA
  int cores = 1;           ///< threads this process may use: the workers that launches may take
  std::int64_t l1d_bytes = 32 << 10;
  std::int64_t l2_bytes = 1 << 20;
  /// Last-level cache as reported; a virtual machine may not get all of it.
  std::int64_t llc_bytes = 8 << 20;
  int compute_capability = 0;  ///< CUDA: major * 10 + minor
  int sm_count = 0;
  std::int64_t smem_bytes = 0;  ///< CUDA: opt-in shared memory of a block
  std::string driver;           ///< CUDA: driver version
  /// CPU: why the system does not let us use an AMX unit that is there; not part of the class.
  std::string amx_refusal;

  /// Device class for the key of a record: everything a measurement depends on, nothing that varies
  /// between identical machines, hence no rates. Example:
  /// "cpu/AMD EPYC 9R14/avx512+vnni+bf16/2 threads/l2 1024K/llc 32768K".
  std::string ClassId() const;
  bool Has(std::uint32_t wanted) const { return (features & wanted) == wanted; }
};

/// The CPU this runs on. TILEWRIGHT_ISA=scalar|avx2|avx512|amx caps the level; any other word, or a
/// level that this processor lacks, is ErrorCode::kUnavailable with a message naming both. Reads
/// CPUID, XCR0, affinity and sysfs; about 1 ms.
Result<DeviceSpec> DetectCpu();

/// As DetectCpu without looking at the environment: `cap` limits the level.
DeviceSpec DetectCpuCappedAt(Isa cap);

/// Size of the last-level cache that this process really gets, measured by timing dependent sweeps
/// over growing sets (about 0.3 s). The largest of three attempts counts, since other processes can
/// only reduce it; never more than reported, never less than the L2. The tuner's cold policy
/// rotates weights over at least three times this size.
std::int64_t MeasureLlcBytes(Executor& executor);

/// Sustained read bandwidth in GB/s of all workers of `executor`, over a set far larger than the
/// caches (about 100 ms).
double MeasureReadBandwidth(Executor& executor);

/// The units of a CPU whose arithmetic can be measured.
enum class ArithmeticUnit : std::uint8_t { kF32, kBF16, kI8, kAmxBF16, kAmxI8 };

/// The highest rate of all workers together, in 1e9 operations a second.
struct PeakRate {
  double giga_ops = 0;
  std::string_view instruction;  ///< what it was measured with, "vpdpbusd"
};
/// Times a loop in registers with the best instruction that `device` has for `unit` (about 10 ms):
/// a bound that no kernel can exceed. nullopt where it has none, or only scalar instructions.
std::optional<PeakRate> MeasurePeak(const DeviceSpec& device, Executor& executor,
                                    ArithmeticUnit unit);

/// Measures every rate of the CPU that `device` describes with all workers of `executor` (about
/// 0.2 s). What cannot be measured, such as the arithmetic of a processor without AVX2, keeps the
/// value that `device` has.
DeviceRates CalibrateRates(const DeviceSpec& device, Executor& executor);

}  // namespace tilewright
