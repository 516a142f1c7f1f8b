#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace tilewright {

/// One step of SplitMix64 (Steele, Lea, Flood 2014): advances `state` and returns 64 well-mixed
/// bits.
constexpr std::uint64_t SplitMix64(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// xoshiro256** (Blackman, Vigna 2018): the same numbers for the same seed on every machine. A
/// value type; one per thread. Also a standard UniformRandomBitGenerator.
class Random {
 public:
  using result_type = std::uint64_t;

  explicit constexpr Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) word = SplitMix64(seed);
  }

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<std::uint64_t>::max(); }
  constexpr result_type operator()() { return Next(); }

  constexpr std::uint64_t Next() {
    const std::uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }

  /// In [0, 1), 53 bits.
  constexpr double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  /// In [low, high).
  constexpr double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  /// In [0, limit); limit > 0. The bias, limit / 2^64, is too small for a test or a sampler to
  /// notice.
  constexpr std::uint64_t Below(std::uint64_t limit) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(Next()) * limit) >> 64);
  }
  /// In [low, high], both included.
  constexpr std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(high - low) + 1));
  }
  /// Normal with mean 0 and deviation 1 (Box and Muller, the cosine half).
  double Normal() {
    const double u = 1.0 - Uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * Uniform());
  }

 private:
  static constexpr std::uint64_t Rotate(std::uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
  }

  std::uint64_t state_[4]{};
};

}  // namespace tilewright
