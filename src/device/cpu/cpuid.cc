#include "device/cpu/cpuid.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tilewright {
namespace {

constexpr bool Bit(std::uint64_t word, int bit) { return (word >> bit & 1) != 0; }

constexpr std::uint64_t kXcr0Avx = 0x6;      // SSE and AVX state
constexpr std::uint64_t kXcr0Avx512 = 0xe6;  // and opmask, upper halves, upper registers
constexpr std::uint64_t kXcr0Amx = 0x60000;  // tile configuration and tile data

constexpr std::uint32_t kAvx512Bits = kFeatureAvx512 | kFeatureAvx512Vnni | kFeatureAvx512Bf16;
constexpr std::uint32_t kAmxBits = kFeatureAmxTile | kFeatureAmxInt8 | kFeatureAmxBf16;

#if defined(__x86_64__)
std::uint64_t ReadXcr0() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

std::string ReadBrand() {
  char text[49] = {};
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned registers[4];
    if (__get_cpuid(0x80000002u + leaf, &registers[0], &registers[1], &registers[2],
                    &registers[3]) == 0) {
      return {};
    }
    std::memcpy(text + 16 * leaf, registers, sizeof registers);
  }
  // Vendors pad the string on both sides and inside.
  std::string brand;
  for (const char* p = text; *p != '\0'; ++p) {
    if (*p == ' ' && (brand.empty() || brand.back() == ' ')) continue;
    brand += *p;
  }
  while (!brand.empty() && brand.back() == ' ') brand.pop_back();
  return brand;
}
#endif

}  // namespace

CpuidRegisters ReadCpuid() {
  CpuidRegisters registers;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return registers;
  registers.leaf1_ecx = c;
  registers.family = (a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0);
  registers.model = (a >> 4 & 15) | (a >> 12 & 0xf0);
  if (Bit(c, 27)) registers.xcr0 = ReadXcr0();  // OSXSAVE: xgetbv is there
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    const unsigned subleaves = a;
    registers.leaf7_ebx = b;
    registers.leaf7_ecx = c;
    registers.leaf7_edx = d;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) registers.leaf7_1_eax = a;
  }
  registers.brand = ReadBrand();
#endif
  return registers;
}

std::uint32_t FeaturesOf(const CpuidRegisters& r) {
  std::uint32_t features = 0;
  const bool avx_state = (r.xcr0 & kXcr0Avx) == kXcr0Avx;
  const bool fma_f16c_avx = Bit(r.leaf1_ecx, 12) && Bit(r.leaf1_ecx, 29) && Bit(r.leaf1_ecx, 28);
  const bool avx2_bmi = Bit(r.leaf7_ebx, 5) && Bit(r.leaf7_ebx, 3) && Bit(r.leaf7_ebx, 8);
  if (!avx_state || !fma_f16c_avx || !avx2_bmi) return 0;
  features |= kFeatureAvx2;

  const bool f_dq_cd_bw_vl = Bit(r.leaf7_ebx, 16) && Bit(r.leaf7_ebx, 17) && Bit(r.leaf7_ebx, 28) &&
                             Bit(r.leaf7_ebx, 30) && Bit(r.leaf7_ebx, 31);
  if ((r.xcr0 & kXcr0Avx512) != kXcr0Avx512 || !f_dq_cd_bw_vl) return features;
  features |= kFeatureAvx512;
  if (Bit(r.leaf7_ecx, 11)) features |= kFeatureAvx512Vnni;
  if (Bit(r.leaf7_1_eax, 5)) features |= kFeatureAvx512Bf16;

  // The kernels of tiles shuffle bytes (VBMI) and multiply f16 (FP16) beside them, as every processor with
  // tiles can.
  const bool tiles_and_more = Bit(r.leaf7_edx, 24) && Bit(r.leaf7_ecx, 1) && Bit(r.leaf7_edx, 23);
  if ((r.xcr0 & kXcr0Amx) != kXcr0Amx || !tiles_and_more) return features;
  features |= kFeatureAmxTile;
  if (Bit(r.leaf7_edx, 25)) features |= kFeatureAmxInt8;
  if (Bit(r.leaf7_edx, 22)) features |= kFeatureAmxBf16;
  return features;
}

Isa IsaOf(std::uint32_t features) {
  if ((features & kFeatureAmxTile) != 0) return Isa::kAmx;
  if ((features & kFeatureAvx512) != 0) return Isa::kAvx512;
  if ((features & kFeatureAvx2) != 0) return Isa::kAvx2;
  return Isa::kScalar;
}

std::uint32_t CapFeatures(std::uint32_t features, Isa cap) {
  if (cap < Isa::kAmx) features &= ~kAmxBits;
  if (cap < Isa::kAvx512) features &= ~kAvx512Bits;
  if (cap < Isa::kAvx2) features &= ~static_cast<std::uint32_t>(kFeatureAvx2);
  return features;
}

std::string AmxRefusal(int reason) {
  std::string hint;
  switch (reason) {
    case EINVAL:
      hint = "Linux before 5.16?";
      break;
    case ENOSPC:
      hint =
          "the alternate signal stack of a thread cannot hold them: sigaltstack must be given "
          "getauxval(AT_MINSIGSTKSZ) bytes or more";
      break;
    case EOPNOTSUPP:
      hint = "the kernel has them switched off, or a hypervisor hides them";
      break;
    case ENOSYS:
    case EPERM:
      hint = "a sandbox or container that does not pass arch_prctl on?";
      break;
    default:
      break;
  }
  std::string text =
      std::string("the system refuses the AMX tile registers: ") + std::strerror(reason);
  if (!hint.empty()) text += " (" + hint + ")";
  return text;
}

std::string RequestAmx() {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, Linux 5.16
  constexpr int kTileData = 18;               // XFEATURE_XTILE_DATA
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return {};
  return AmxRefusal(errno);
#else
  return "no AMX on this architecture";
#endif
}

}  // namespace tilewright
