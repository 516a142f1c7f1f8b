#pragma once

#include <bit>
#include <cstdint>

namespace tilewright {

/// e^x for x in [-700, 0], relative error below 1e-11. Only additions and multiplications in a
/// fixed order, so the bits are the same on every machine (the C library's are not: it picks
/// another routine where the CPU has FMA), and compilers can run it for several values at once. The
/// file that includes it must be compiled without contraction (-ffp-contract=off).
///
/// x = k ln 2 + r with |r| <= ln(2) / 2; e^r is computed by its Taylor polynomial of degree 9, 2^k
/// by setting the exponent.
inline double PortableExp(double x) {
  // Adding it leaves the integer nearest to x / ln 2 in the low bits.
  constexpr double kRound = 0x1.8p52;
  const double shifted = x * 0x1.71547652b82fep+0 + kRound;
  const double k = shifted - kRound;
  const double r = (x - k * 0x1.62e42fefa3800p-1) - k * 0x1.ef35793c76730p-45;
  double p = 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 1.0 / 2;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const std::uint64_t exponent = (std::bit_cast<std::uint64_t>(shifted) + 1023) << 52;
  return p * std::bit_cast<double>(exponent);
}

}  // namespace tilewright
