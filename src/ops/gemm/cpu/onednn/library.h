#pragma once

#include <cstdint>
#include <string>

/// What the kernels that call oneDNN have in common.

namespace tilewright::gemm {

/// The library that is loaded, "onednn-2.6.3-...": how fingerprints of its kernels begin; behind a "+"
/// may stand what is our own in them.
std::string OneDnnFingerprint();

/// Feature bits of all that this machine has, capped by nothing: oneDNN picks its code by what the
/// processor has and hears nothing of TILEWRIGHT_ISA, so its kernels need the whole level, and a
/// device below it refuses them.
std::uint32_t FeaturesOfThisMachine();

/// A team of one for the calling thread as long as it lives: oneDNN then starts no thread, and cuts
/// what it prepares for one. The number is a variable of each thread, here one of the caller's.
class OneOpenMpThread {
 public:
  OneOpenMpThread();
  ~OneOpenMpThread();
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};

}  // namespace tilewright::gemm
