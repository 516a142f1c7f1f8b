#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"
#include "device/cpu/cpuid.h"
#include "ops/gemm/cpu/w8a8/epilogue.h"
#include "ops/gemm/cpu/w8a8/tile_products.h"
#include "tilewright/device_spec.h"

namespace tilewright::gemm_w8a8 {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Named {
  std::string name;
  const IsaOps* ops;
};

/// Every kernel file that this machine can run; tiles also emulated.
std::vector<Named> AllOps() {
  static constexpr IsaOps kEmulated = {"emulated", PackRows<0>, MultiplyByTiles<EmulatedTiles>,
                                       FinishRows};
  std::vector<Named> all = {{"scalar", &OpsScalar()}, {"emulated", &kEmulated}};
  const DeviceSpec cpu = DetectCpuCappedAt(Isa::kAmx);
  if (cpu.Has(kFeatureAvx512 | kFeatureAvx512Vnni)) all.push_back({"vnni", &OpsAvx512Vnni()});
  if (cpu.Has(kFeatureAmxTile | kFeatureAmxInt8)) all.push_back({"amx", &OpsAmx()});
  return all;
}

struct Aligned {
  explicit Aligned(std::size_t bytes) : raw(bytes + 64, 0xa5) {}
  std::uint8_t* data() {
    return raw.data() + (64 - reinterpret_cast<std::uintptr_t>(raw.data()) % 64) % 64;
  }
  std::vector<std::uint8_t> raw;
};

/// m x n x k of random values; `lda` and `ldd` are wider than they need be, and what lies between
/// rows is NaN.
struct Problem {
  int m, n, k;
  std::int64_t lda = k + 3, ldb = k + 5, ldd = n + 7;
  std::vector<float> a = std::vector<float>(static_cast<std::size_t>(m * lda), kNan);
  std::vector<float> b = std::vector<float>(static_cast<std::size_t>(n * ldb), kNan);

  void Fill(unsigned seed) {
    Random random(seed);
    const auto number = [&] {
      return static_cast<float>(static_cast<int>(random.Next() % 20001) - 10000) / 5000.0f;
    };
    for (int r = 0; r < m; ++r)
      for (int i = 0; i < k; ++i) a[static_cast<std::size_t>(r * lda + i)] = number();
    for (int c = 0; c < n; ++c)
      for (int i = 0; i < k; ++i) b[static_cast<std::size_t>(c * ldb + i)] = number();
  }

  /// D with a guard row before and behind, all NaN where nothing is written.
  std::vector<float> Run(const IsaOps& ops) const {
    const int tiles = CeilDiv(m, kTileRowCount), panels = CeilDiv(n, kColumns);
    Aligned packed_a(static_cast<std::size_t>(tiles) * TileBytes(k));
    Aligned packed_b(static_cast<std::size_t>(panels) * PanelBytes(k));
    std::vector<float> scales(static_cast<std::size_t>(m), kNan);
    for (int t = 0; t < tiles; ++t) {
      ops.pack_rows(a.data() + t * kTileRowCount * lda, lda, std::min(16, m - t * 16), k,
                    packed_a.data() + static_cast<std::size_t>(t) * TileBytes(k),
                    scales.data() + t * kTileRowCount);
    }
    for (int p = 0; p < panels; ++p) {
      PackPanel(b.data() + p * kColumns * ldb, ldb, std::min(16, n - p * 16), k,
                packed_b.data() + static_cast<std::size_t>(p) * PanelBytes(k));
    }
    std::vector<float> d(static_cast<std::size_t>((m + 2) * ldd), kNan);
    Task task;
    task.a = packed_a.data(), task.row_scales = scales.data(), task.rows = m, task.k = k;
    task.b = packed_b.data(), task.columns = n;
    task.d = d.data() + ldd, task.ldd = ldd;
    ops.multiply(task);
    return d;
  }
};

/// Codes and scale of one row or column, by a definition of the test's own.
struct Rounded {
  std::vector<int> codes;
  double scale;
};
Rounded RoundedOf(const float* x, int k) {
  float most = 0;
  for (int i = 0; i < k; ++i) most = std::max(most, std::abs(x[i]));
  Rounded out{std::vector<int>(static_cast<std::size_t>(k), 0), 0};
  if (most == 0) return out;
  out.scale = most / 127.0f;
  for (int i = 0; i < k; ++i)
    out.codes[static_cast<std::size_t>(i)] =
        static_cast<int>(std::nearbyintf(x[i] * (127.0f / most)));
  return out;
}

constexpr int kShapes[][3] = {{1, 1, 1},     {1, 16, 64},   {2, 17, 63},  {3, 33, 65},
                              {4, 40, 128},  {5, 15, 300},  {8, 31, 64},  {9, 48, 129},
                              {15, 32, 576}, {16, 16, 1},   {17, 47, 66}, {31, 20, 70},
                              {32, 64, 64},  {33, 65, 191}, {65, 35, 257}};

TEST(W8A8, IsTheFloat64ProductOfTheRoundedOperandsAndWritesNothingElse) {
  for (const auto& [m, n, k] : kShapes) {
    Problem p{m, n, k};
    p.Fill(static_cast<unsigned>(m * 7 + n * 3 + k));
    for (const auto& [name, ops] : AllOps()) {
      SCOPED_TRACE(name + " " + std::to_string(m) + "x" + std::to_string(n) + "x" +
                   std::to_string(k));
      const std::vector<float> d = p.Run(*ops);
      for (int r = -1; r <= m; ++r) {
        for (int c = 0; c < p.ldd; ++c) {
          const float got = d[static_cast<std::size_t>((r + 1) * p.ldd + c)];
          if (r < 0 || r == m || c >= n) {
            ASSERT_TRUE(std::isnan(got)) << "written at " << r << ", " << c;
            continue;
          }
          const Rounded x = RoundedOf(&p.a[static_cast<std::size_t>(r * p.lda)], k);
          const Rounded y = RoundedOf(&p.b[static_cast<std::size_t>(c * p.ldb)], k);
          double sum = 0;
          for (std::size_t i = 0; i < x.codes.size(); ++i) sum += x.codes[i] * y.codes[i];
          const double want = sum * x.scale * y.scale;
          // The conversion and two products round.
          ASSERT_NEAR(got, want, 3.1 * 0x1p-24 * std::abs(want)) << r << ", " << c;
        }
      }
    }
  }
}

TEST(W8A8, EveryInstructionSetGivesTheSameBitsTwice) {
  for (const auto& [m, n, k] : kShapes) {
    Problem p{m, n, k};
    p.Fill(static_cast<unsigned>(m + n + k));
    const std::vector<float> want = p.Run(OpsScalar());
    for (const auto& [name, ops] : AllOps()) {
      for (int round = 0; round < 2; ++round) {
        const std::vector<float> got = p.Run(*ops);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
            << name << " " << m << "x" << n << "x" << k;
      }
    }
  }
}

TEST(W8A8, TheLargestSumsOfTheLongestKAreExact) {
  Problem p{1, 2, kMostK};
  for (int i = 0; i < p.k; ++i) {
    p.a[static_cast<std::size_t>(i)] = -127;
    p.b[static_cast<std::size_t>(i)] = -127;
    p.b[static_cast<std::size_t>(p.ldb + i)] = 127;
  }
  const auto want = static_cast<float>(std::int64_t{kMostK} * 127 * 127);
  for (const auto& [name, ops] : AllOps()) {
    const std::vector<float> d = p.Run(*ops);
    EXPECT_EQ(d[static_cast<std::size_t>(p.ldd)], want) << name;
    EXPECT_EQ(d[static_cast<std::size_t>(p.ldd) + 1], -want) << name;
  }
}

TEST(W8A8, ValuesThatAreNotFiniteReachTheirRowOrColumnOnly) {
  Problem p{18, 20, 100};
  p.Fill(5);
  p.a[static_cast<std::size_t>(3 * p.lda + 50)] = std::numeric_limits<float>::infinity();
  p.b[static_cast<std::size_t>(17 * p.ldb + 99)] = kNan;
  for (const auto& [name, ops] : AllOps()) {
    const std::vector<float> d = p.Run(*ops);
    for (int r = 0; r < p.m; ++r) {
      for (int c = 0; c < p.n; ++c) {
        EXPECT_EQ(std::isnan(d[static_cast<std::size_t>((r + 1) * p.ldd + c)]), r == 3 || c == 17)
            << name << " " << r << ", " << c;
      }
    }
  }
}

}  // namespace
}  // namespace tilewright::gemm_w8a8
