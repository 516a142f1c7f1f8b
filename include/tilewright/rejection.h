#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tilewright {

/// Why a kernel cannot run a problem. Not an error: another kernel may be able to.
enum class Reason : std::uint8_t {
  kDevice,  ///< the device lacks an instruction set or resource
  kType,
  kOrder,
  kStriding,
  kPack,
  kQuant,
  kShape,
  kAlignment,
  kPrologue,
  kEpilogue,
  kScaling,    ///< alpha or beta
  kPrecision,  ///< rounds activations further than the problem allows
  kGuarantee,  ///< does not guarantee determinism or batch invariance
  kWorkspace,
  kProvider,     ///< excluded by --providers
  kQuarantined,  ///< crashed, hung or returned wrong numbers on this device before
};
std::string_view ReasonName(Reason reason);

struct Rejection {
  Reason reason = Reason::kType;
  std::string have;  ///< what the problem has: "k = 100"
  std::string need;  ///< what the kernel needs: "k a multiple of 32"

  std::string ToString() const;  ///< "shape: k = 100, needs k a multiple of 32"
};

}  // namespace tilewright
