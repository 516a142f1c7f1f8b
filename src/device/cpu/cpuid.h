#pragma once

#include <cstdint>
#include <string>

#include "tilewright/device.h"

namespace tilewright {

/// The registers that decide which instructions can be executed, as a value, so that a test can
/// imitate any processor. Zero if the processor lacks the leaf. Bit positions: Intel SDM volume 2A,
/// CPUID; AMD APM volume 3, appendix E.
struct CpuidRegisters {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;  ///< register states that the operating system saves; 0 without OSXSAVE
  std::uint32_t family = 0;
  std::uint32_t model = 0;
  std::string brand;  ///< trimmed brand string; "" if there is none
};

/// Reads this processor. On anything but x86-64 every field is zero.
CpuidRegisters ReadCpuid();

/// Feature bits usable with these registers. AMX bits are set if CPUID and XCR0 have them; Linux
/// also requires a permission (RequestAmx). A level is set only together with all levels below it.
std::uint32_t FeaturesOf(const CpuidRegisters& registers);

/// The highest level whose features are all present.
Isa IsaOf(std::uint32_t features);

/// `features` less everything above `cap`.
std::uint32_t CapFeatures(std::uint32_t features, Isa cap);

/// What to tell the user where Linux does not grant the AMX tile registers, by errno.
std::string AmxRefusal(int reason);

/// Asks Linux to let this process use the AMX tile registers (arch_prctl ARCH_REQ_XCOMP_PERM).
/// "" if granted, else AmxRefusal. Idempotent; applies to threads started later, too.
std::string RequestAmx();

}  // namespace tilewright
