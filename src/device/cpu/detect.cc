#include "core/env.h"
#include "core/text.h"
#include "device/cpu/caches.h"
#include "device/cpu/cpuid.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

std::string NameOf(const CpuidRegisters& registers) {
  const std::string brand = registers.brand.empty() ? "unknown CPU" : registers.brand;
  // Hypervisors shorten brands to "AMD EPYC", which covers five microarchitectures.
  return Format("{} (family {} model {})", brand, registers.family, registers.model);
}

}  // namespace

DeviceSpec DetectCpuCappedAt(Isa cap) {
  const CpuidRegisters registers = ReadCpuid();
  DeviceSpec spec;
  spec.kind = DeviceKind::kCpu;
  spec.name = NameOf(registers);
  spec.features = CapFeatures(FeaturesOf(registers), cap);
  if (spec.Has(kFeatureAmxTile)) {
    spec.amx_refusal = RequestAmx();
    if (!spec.amx_refusal.empty()) spec.features = CapFeatures(spec.features, Isa::kAvx512);
  }
  spec.isa = IsaOf(spec.features);
  spec.cores = DefaultThreads();
  static_cast<DeviceRates&>(spec) = DefaultRates(spec.features, spec.cores);
  const CacheSizes caches = DetectCaches();
  if (caches.l1d > 0) spec.l1d_bytes = caches.l1d;
  if (caches.l2 > 0) spec.l2_bytes = caches.l2;
  if (caches.llc > 0) spec.llc_bytes = caches.llc;
  return spec;
}

Result<DeviceSpec> DetectCpu() {
  const auto wanted = GetEnv("TILEWRIGHT_ISA");
  if (!wanted) return DetectCpuCappedAt(Isa::kAmx);
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (*wanted != IsaName(isa)) continue;
    DeviceSpec spec = DetectCpuCappedAt(isa);
    if (spec.isa == isa) return spec;
    return Fail(ErrorCode::kUnavailable,
                Format("TILEWRIGHT_ISA={}, but {} has {} at most{}{}", *wanted, spec.name,
                       IsaName(spec.isa), spec.amx_refusal.empty() ? "" : ": ", spec.amx_refusal));
  }
  return Fail(
      ErrorCode::kUnavailable,
      Format("TILEWRIGHT_ISA={}: must be scalar, avx2, avx512 or amx (this processor has {})",
             *wanted, IsaName(DetectCpuCappedAt(Isa::kAmx).isa)));
}

}  // namespace tilewright
