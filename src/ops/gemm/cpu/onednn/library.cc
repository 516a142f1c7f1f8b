#include "ops/gemm/cpu/onednn/library.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include "tilewright/device.h"

namespace tilewright::gemm {

std::string OneDnnFingerprint() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("onednn-{}.{}.{}-{}", version->major, version->minor, version->patch,
                     version->hash);
}

std::uint32_t FeaturesOfThisMachine() {
  static const std::uint32_t features = [] {
    std::uint32_t bits = 0;
    const Isa isa = DetectCpuCappedAt(Isa::kAmx).isa;
    if (isa >= Isa::kAvx2) bits |= kFeatureAvx2;
    if (isa >= Isa::kAvx512) bits |= kFeatureAvx512;
    if (isa >= Isa::kAmx) bits |= kFeatureAmxTile;
    return bits;
  }();
  return features;
}

OneOpenMpThread::OneOpenMpThread() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}

OneOpenMpThread::~OneOpenMpThread() {
  if (before_ != 1) omp_set_num_threads(before_);
}

}  // namespace tilewright::gemm
