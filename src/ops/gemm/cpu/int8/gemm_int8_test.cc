#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "ops/gemm/cpu/int8/layout.h"
#include "ops/gemm/cpu/int8/test_kernels.h"

namespace tilewright {
namespace {

using test::DenseInt8Kernels;
using test::Int8Types;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
std::uint32_t HostFeatures() {
  std::uint32_t features = 0;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) features |= kFeatureAvx2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd")) {
    features |= kFeatureAvx512;
  }
  if (__builtin_cpu_supports("avx512vnni")) features |= kFeatureAvx512Vnni;
  return features;
}

/// The kernels of one weight type that this processor can run, scalar last.
std::vector<Kernel*> Runnable(DataType type) {
  std::vector<Kernel*> found;
  const std::uint32_t features = HostFeatures();
  for (Kernel* kernel : DenseInt8Kernels()) {
    if ((kernel->desc().type_b & Bit(type)) == 0) continue;
    if ((features & kernel->info().features) == kernel->info().features) found.push_back(kernel);
  }
  return found;
}

Executor& Pool(int threads) {
  static const std::unique_ptr<Executor> pools[] = {MakeThreadPool(1), MakeThreadPool(2),
                                                    MakeThreadPool(3)};
  return *pools[threads - 1];
}

/// Weights in their file format, their exact values, and every pack a test asked for.
struct Weights {
  DataType type;
  int n, k;
  std::vector<std::uint8_t> bytes;
  std::vector<double> values;  // [n][k]

  std::size_t row_bytes() const { return BytesOf(type, k); }
};

Weights RandomWeights(DataType type, int n, int k, std::uint64_t seed) {
  test::RandomMatrix matrix(type, n, k, seed, 0.05);
  const auto* data = static_cast<const std::uint8_t*>(matrix.bytes.data());
  return {type, n, k, {data, data + matrix.bytes.size()}, matrix.values};
}

void Decode(Weights& w) {
  w.values.resize(static_cast<std::size_t>(w.n) * static_cast<std::size_t>(w.k));
  for (int i = 0; i < w.n; ++i) {
    ASSERT_TRUE(
        DecodeRow(w.type, w.bytes.data() + static_cast<std::size_t>(i) * w.row_bytes(), w.k,
                  w.values.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(w.k)));
  }
}

struct Call {
  int m = 1;
  float alpha = 1, beta = 0;
  Epilogue epilogue = Epilogue::kNone;
  int threads = 2;
  bool in_place = false;  // D is C
  int lda_extra = 0, ldd_extra = 0;
  const char* config = "";
};

struct Output {
  int columns = 0;
  std::vector<float> d;  // [m][columns]
};

/// Activations as a kernel takes them: f32 rows, or the same rounded to i8x32.
struct Rows {
  test::GuardedBytes bytes;
  MatrixLayout layout;
};
Rows RowsFor(const Kernel& kernel, const std::vector<float>& a, int m, int k, int extra) {
  const bool rounded = kernel.desc().type_a == Bit(DataType::kI8X32);
  const DataType type = rounded ? DataType::kI8X32 : DataType::kF32;
  const int lda = k + (rounded ? 32 * extra : extra);
  Rows rows{test::GuardedBytes(BytesOf(type, std::int64_t{m} * lda), 4),
            {.type = type, .rows = m, .cols = k, .ld = lda}};
  for (int i = 0; i < m; ++i) {
    auto* row = static_cast<std::byte*>(rows.bytes.data()) + BytesOf(type, std::int64_t{i} * lda);
    EXPECT_TRUE(EncodeRow(type, a.data() + static_cast<std::ptrdiff_t>(i) * k, k, row));
  }
  return rows;
}

/// Packs into guarded memory, launches into a poisoned, guarded D whose rows are `ldd_extra` apart,
/// and checks that nothing but D was written.
Output Multiply(Kernel& kernel, const Weights& w, const std::vector<float>& a,
                const std::vector<float>& c, const Call& call) {
  const bool gated = call.epilogue == Epilogue::kGatedSilu;
  const int columns = gated ? w.n / 2 : w.n;
  Output out{columns, {}};
  MatrixLayout plain{
      .type = w.type, .order = Order::kColMajor, .rows = w.k, .cols = w.n, .ld = w.k};
  test::GuardedBytes packed(kernel.PackedBytes(plain));
  EXPECT_TRUE(kernel.PackB(w.bytes.data(), plain, packed.data(), Stream{&Pool(call.threads)}));
  EXPECT_EQ(packed.Damage(), "");

  const int ldd = columns + call.ldd_extra;
  const Rows rows = RowsFor(kernel, a, call.m, w.k, call.lda_extra);
  test::Guarded<float> d_memory(static_cast<std::size_t>(call.m) * ldd, 4),
      c_memory(d_memory.size(), 4);
  for (int i = 0; i < call.m; ++i) {
    if (call.beta == 0) continue;
    float* target = (call.in_place ? d_memory : c_memory).data() + i * ldd;
    std::copy_n(c.begin() + static_cast<std::ptrdiff_t>(i) * columns, columns, target);
  }
  GemmDesc problem;
  problem.m = call.m, problem.n = w.n, problem.k = w.k;
  problem.type_a = rows.layout.type, problem.type_b = w.type;
  problem.pack_b = kPackAny;
  problem.epilogue = call.epilogue;
  problem.scaling = Scaling::kAny;
  const auto rejection = kernel.IsFeasible(problem);
  EXPECT_FALSE(rejection) << rejection->ToString();
  LaunchSpec spec{.kernel = &kernel, .config = kernel.ParseConfig(call.config).value()};
  test::GuardedBytes scratch(kernel.PartialsBytes(problem, spec, DeviceSpec{}));
  Workspace workspace{.partials = scratch.data(), .partials_size = scratch.size()};

  GemmArgs args;
  args.alpha = call.alpha, args.beta = call.beta;
  args.a = rows.bytes.data(), args.b = packed.data(), args.d = d_memory.data();
  args.a_layout = rows.layout;
  args.b_layout = plain;
  args.b_layout.pack = kernel.desc().pack_b;
  args.d_layout = {.rows = call.m, .cols = columns, .ld = ldd};
  if (call.beta != 0) {
    args.c = call.in_place ? d_memory.data() : c_memory.data();
    args.c_layout = args.d_layout;
  }
  const Status status = kernel.Launch(args, spec, workspace, Stream{&Pool(call.threads)});
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_EQ(d_memory.Damage(), "");
  EXPECT_EQ(scratch.Damage(), "");
  for (int i = 0; i < call.m; ++i) {
    for (int j = 0; j < ldd; ++j) {
      const float value = d_memory[static_cast<std::size_t>(i * ldd + j)];
      if (j < columns) {
        out.d.push_back(value);
      } else {
        EXPECT_TRUE(std::isnan(value)) << "padding of D written at row " << i << " column " << j;
      }
    }
  }
  return out;
}

/// Activations as the kernels round them: d * q of each block of 32.
struct Quantised {
  std::vector<double> value;  // [m][k]
  std::vector<double> error;  // what the rounding may lose, d / 2
};
Quantised QuantiseRows(const std::vector<float>& a) {
  Quantised q;
  for (std::size_t start = 0; start < a.size(); start += 32) {
    float amax = 0;
    for (std::size_t i = start; i < start + 32; ++i) amax = std::fmax(amax, std::fabs(a[i]));
    const float d = amax < 0x1p-100f ? 0.0f : amax / 127.0f;
    const float inverse = amax < 0x1p-100f ? 0.0f : 127.0f / amax;
    for (std::size_t i = start; i < start + 32; ++i) {
      q.value.push_back(static_cast<double>(d) *
                        static_cast<double>(std::nearbyintf(a[i] * inverse)));
      q.error.push_back(static_cast<double>(d) * 0.500001);
    }
  }
  return q;
}

struct Expected {
  std::vector<double> value, tight,
      loose;  // result on quantised activations; tolerance on it; tolerance on the f32 result
  std::vector<double> exact;  // result on the activations themselves
};

/// f64 results. tight: at most four roundings of f32 a block, on partial sums bounded by the sum of
/// magnitudes (q4_1 adds its minimum apart, so d * q and m count separately: 16 |w| covers both).
/// loose: tight plus half a step of every activation.
Expected Oracle(const Weights& w, const std::vector<float>& a, const std::vector<float>& c,
                const Call& call) {
  const Quantised q = QuantiseRows(a);
  Expected e;
  const auto dot = [&](int i, int j, double& value, double& exact, double& magnitude,
                       double& slack) {
    value = exact = magnitude = slack = 0;
    for (int x = 0; x < w.k; ++x) {
      const auto ia =
          static_cast<std::size_t>(i) * static_cast<std::size_t>(w.k) + static_cast<std::size_t>(x);
      const double weight = w.values[static_cast<std::size_t>(j) * static_cast<std::size_t>(w.k) +
                                     static_cast<std::size_t>(x)];
      value += q.value[ia] * weight;
      exact += static_cast<double>(a[ia]) * weight;
      slack += q.error[ia] * std::fabs(weight);
    }
    // Magnitude a block: what the codes, not only their sum, can reach.
    for (int b = 0; b < w.k; b += 32) {
      double sum_x = 0, max_w = 0;
      for (int x = b; x < b + 32; ++x) {
        const auto ia = static_cast<std::size_t>(i) * static_cast<std::size_t>(w.k) +
                        static_cast<std::size_t>(x);
        sum_x += std::fabs(q.value[ia]);
        max_w = std::fmax(
            max_w, std::fabs(w.values[static_cast<std::size_t>(j) * static_cast<std::size_t>(w.k) +
                                      static_cast<std::size_t>(x)]));
      }
      magnitude += sum_x * max_w * 3;
    }
  };
  const double eps = 0x1p-24 * (4.0 + w.k / 32.0);
  const bool gated = call.epilogue == Epilogue::kGatedSilu;
  const int columns = gated ? w.n / 2 : w.n;
  for (int i = 0; i < call.m; ++i) {
    for (int j = 0; j < columns; ++j) {
      double value, exact, magnitude, slack;
      if (!gated) {
        dot(i, j, value, exact, magnitude, slack);
        value *= call.alpha, exact *= call.alpha, magnitude *= std::fabs(call.alpha),
            slack *= std::fabs(call.alpha);
      } else {
        double up, up_exact, up_magnitude, up_slack;
        const int gate_column = j / 16 * 32 + j % 16;
        dot(i, gate_column, value, exact, magnitude, slack);
        dot(i, gate_column + 16, up, up_exact, up_magnitude, up_slack);
        const double alpha = call.alpha;
        const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
        // |silu'| <= 1.1, |silu(x)| <= |x|; its own error is a few ulp.
        const double g = alpha * value, u = alpha * up, ge = alpha * exact, ue = alpha * up_exact;
        const double em = std::fabs(alpha) * magnitude, um = std::fabs(alpha) * up_magnitude;
        const double gs = std::fabs(alpha) * slack, us = std::fabs(alpha) * up_slack;
        value = silu(g) * u, exact = silu(ge) * ue;
        magnitude = 1.1 * em * std::fabs(u) + std::fabs(silu(g)) * um + 8 * std::fabs(value) +
                    em * um * eps;
        slack = 1.1 * gs * (std::fabs(u) + us) + std::fabs(silu(g)) * us;
      }
      if (call.beta != 0) {
        const double addend =
            static_cast<double>(call.beta) * c[static_cast<std::size_t>(i * columns + j)];
        value += addend, exact += addend, magnitude += std::fabs(addend);
      }
      e.value.push_back(value);
      e.exact.push_back(exact);
      e.tight.push_back(magnitude * eps + 1e-37);
      e.loose.push_back(magnitude * eps + slack + 1e-37);
    }
  }
  return e;
}

void ExpectMatches(const Output& got, const Expected& want, const std::string& repro) {
  ASSERT_EQ(got.d.size(), want.value.size());
  for (std::size_t i = 0; i < got.d.size(); ++i) {
    const double value = got.d[i];
    ASSERT_LE(std::fabs(value - want.value[i]), want.tight[i])
        << repro << " row " << i / got.columns << " column " << i % got.columns << ": got " << value
        << ", want " << want.value[i];
    ASSERT_LE(std::fabs(value - want.exact[i]), want.loose[i])
        << repro << ": beyond what int8 rounding may lose";
  }
}

std::string Repro(const Kernel& kernel, const Weights& w, const Call& call) {
  return std::string(kernel.name()) + " m=" + std::to_string(call.m) + " n=" + std::to_string(w.n) +
         " k=" + std::to_string(w.k) + " threads=" + std::to_string(call.threads);
}

class GemmInt8 : public testing::TestWithParam<DataType> {
 protected:
  DataType type() const { return GetParam(); }
  const BlockFormat& format() const { return *FindFormat(type()); }
  int k(int blocks) const {
    const int elements = format().elements;
    return (32 * blocks + elements - 1) / elements * elements;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, GemmInt8, testing::ValuesIn(Int8Types()),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

TEST_P(GemmInt8, EveryInstructionSetOffersAKernel) {
  int all = 0;
  for (Kernel* kernel : DenseInt8Kernels())
    all += (kernel->desc().type_b & Bit(type())) != 0 ? 1 : 0;
  EXPECT_EQ(all, 2 * 4) << "for f32 and for i8x32 activations";
  EXPECT_GE(Runnable(type()).size(), 1u);
}

TEST_P(GemmInt8, MatchesTheOracleForEveryTailOfRows) {
  const Weights w = RandomWeights(type(), 37, k(3), 1);
  for (Kernel* kernel : Runnable(type())) {
    const bool scalar = kernel->info().features == 0;
    for (int m = 1; m <= 130; m += m < 40 ? 1 : m == 40 ? 87 : 1) {
      if (scalar && m > 5) break;
      const auto a = test::RandomFloats(static_cast<std::size_t>(m) * w.k, 100 + m);
      const Call call{.m = m, .lda_extra = 3, .ldd_extra = 5};
      ExpectMatches(Multiply(*kernel, w, a, {}, call), Oracle(w, a, {}, call),
                    Repro(*kernel, w, call));
    }
  }
}

TEST_P(GemmInt8, MatchesTheOracleForEveryTailOfColumns) {
  for (int n = 1; n <= 50; ++n) {
    const Weights w = RandomWeights(type(), n, k(2), 200 + n);
    for (const int m : {1, 5, 13}) {
      const auto a = test::RandomFloats(static_cast<std::size_t>(m) * w.k, 300 + n);
      const Call call{.m = m, .ldd_extra = n % 3};
      const Expected want = Oracle(w, a, {}, call);
      for (Kernel* kernel : Runnable(type()))
        ExpectMatches(Multiply(*kernel, w, a, {}, call), want, Repro(*kernel, w, call));
    }
  }
}

TEST_P(GemmInt8, MatchesTheOracleForOddNumbersOfBlocks) {
  for (const int blocks : {1, 2, 3, 7, 9, 18, 33}) {
    const Weights w = RandomWeights(type(), 40, k(blocks), 400 + blocks);
    const auto a = test::RandomFloats(14 * static_cast<std::size_t>(w.k), 500 + blocks);
    const Call call{.m = 14};
    const Expected want = Oracle(w, a, {}, call);
    for (Kernel* kernel : Runnable(type()))
      ExpectMatches(Multiply(*kernel, w, a, {}, call), want, Repro(*kernel, w, call));
  }
}

/// Few rows are quantised in pieces of their k, by all workers.
TEST_P(GemmInt8, FewRowsOfManyBlocksMatchTheOracleOnEveryThreadCount) {
  const Weights w = RandomWeights(type(), 19, k(299), 20);
  for (Kernel* kernel : Runnable(type())) {
    for (const int m : {1, 2, 7, 13}) {
      if (kernel->info().features == 0 && m > 2) break;
      const auto a = test::RandomFloats(static_cast<std::size_t>(m) * w.k, 21 + m);
      const Expected want = Oracle(w, a, {}, {.m = m, .lda_extra = 3});
      for (const int threads : {1, 2, 3}) {
        const Call call{.m = m, .threads = threads, .lda_extra = 3};
        ExpectMatches(Multiply(*kernel, w, a, {}, call), want, Repro(*kernel, w, call));
      }
    }
  }
}

TEST_P(GemmInt8, ScalesAndAddsC) {
  const Weights w = RandomWeights(type(), 35, k(2), 3);
  const int m = 15;
  const auto a = test::RandomFloats(static_cast<std::size_t>(m) * w.k, 4);
  const auto c = test::RandomFloats(static_cast<std::size_t>(m) * w.n, 5);
  for (Kernel* kernel : Runnable(type())) {
    for (const auto& [alpha, beta] :
         {std::pair{1.0f, 1.0f}, {0.5f, 0.0f}, {-2.0f, 3.0f}, {0.0f, 1.0f}, {0.0f, 0.0f}}) {
      for (const bool in_place : {false, true}) {
        const Call call{.m = m, .alpha = alpha, .beta = beta, .in_place = in_place, .ldd_extra = 1};
        ExpectMatches(Multiply(*kernel, w, a, c, call), Oracle(w, a, c, call),
                      Repro(*kernel, w, call));
      }
    }
  }
}

TEST_P(GemmInt8, FusesTheGatedSilu) {
  for (const int n : {32, 64, 160}) {
    const Weights w = RandomWeights(type(), n, k(4), 6);
    for (const int m : {1, 3, 29}) {
      const auto a = test::RandomFloats(static_cast<std::size_t>(m) * w.k, 7, 3.0);
      const auto c = test::RandomFloats(static_cast<std::size_t>(m) * n / 2, 8);
      for (Kernel* kernel : Runnable(type())) {
        for (const float beta : {0.0f, 1.0f}) {
          const Call call{.m = m,
                          .alpha = 1.5f,
                          .beta = beta,
                          .epilogue = Epilogue::kGatedSilu,
                          .ldd_extra = 2};
          ExpectMatches(Multiply(*kernel, w, a, c, call), Oracle(w, a, c, call),
                        Repro(*kernel, w, call));
        }
      }
    }
  }
}

TEST_P(GemmInt8, GatedSiluOfExtremeGatesStaysFinite) {
  Weights w = RandomWeights(type(), 32, k(1), 9);
  for (const float size : {1e3f, 1e6f, 1e-6f}) {
    auto a = test::RandomFloats(static_cast<std::size_t>(2 * w.k), 10, size);
    const Call call{.m = 2, .epilogue = Epilogue::kGatedSilu};
    for (Kernel* kernel : Runnable(type())) {
      ExpectMatches(Multiply(*kernel, w, a, {}, call), Oracle(w, a, {}, call),
                    Repro(*kernel, w, call));
    }
  }
}

TEST_P(GemmInt8, RowsAreBitwiseTheSameInEveryBatchOnEveryInstructionSetAndThreadCount) {
  const Weights w = RandomWeights(type(), 83, k(5), 11);
  const int m = 61;
  const auto a = test::RandomFloats(static_cast<std::size_t>(m) * w.k, 12);
  const auto c = test::RandomFloats(static_cast<std::size_t>(m) * w.n, 13);
  const auto kernels = Runnable(type());
  Output want = Multiply(*kernels.back(), w, a, c, {.m = m, .beta = 1, .threads = 1});
  for (Kernel* kernel : kernels) {
    for (const int threads : {1, 2, 3}) {
      const Output all = Multiply(*kernel, w, a, c, {.m = m, .beta = 1, .threads = threads});
      ASSERT_TRUE(test::BitwiseEqual(all.d.data(), want.d.data(), want.d.size() * 4))
          << kernel->name() << threads;
    }
    for (const int part : {1, 2, 3, 5, 8, 12, 13, 24}) {
      const std::vector<float> head(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(part) * w.k);
      for (const int threads : {1, 2, 3}) {
        const Output some =
            Multiply(*kernel, w, head, c, {.m = part, .beta = 1, .threads = threads});
        ASSERT_TRUE(test::BitwiseEqual(some.d.data(), want.d.data(), some.d.size() * 4))
            << kernel->name() << " m=" << part << " threads=" << threads;
      }
    }
  }
  if (kernels.size() < 2) GTEST_SKIP() << "one instruction set only";
}

TEST_P(GemmInt8, GatedSiluIsBitwiseTheSameOnEveryInstructionSet) {
  const Weights w = RandomWeights(type(), 160, k(2), 14);
  const auto a = test::RandomFloats(9 * static_cast<std::size_t>(w.k), 15, 20.0);
  const auto kernels = Runnable(type());
  for (const int m : {1, 9}) {
    const std::vector<float> rows(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(m) * w.k);
    const Call call{.m = m, .epilogue = Epilogue::kGatedSilu};
    const Output want = Multiply(*kernels.back(), w, rows, {}, call);
    for (Kernel* kernel : kernels) {
      const Output got = Multiply(*kernel, w, rows, {}, call);
      EXPECT_TRUE(test::BitwiseEqual(got.d.data(), want.d.data(), want.d.size() * 4))
          << kernel->name() << " m=" << m;
    }
  }
}

/// Whole groups of panels, and what is left of them in a task.
TEST_P(GemmInt8, PanelsSideBySideGiveTheBitsOfOneAtATime) {
  for (const int n : {64, 112, 333, 1024}) {
    for (const int blocks : {1, 2, 9, 40}) {
      const Weights w = RandomWeights(type(), n, k(blocks), 800 + n + blocks);
      const auto a = test::RandomFloats(static_cast<std::size_t>(w.k), 900 + n + blocks);
      for (Kernel* kernel : Runnable(type())) {
        const Output want = Multiply(*kernel, w, a, {}, {.threads = 1, .config = "panels=1"});
        for (const int threads : {1, 2}) {
          const Output got = Multiply(*kernel, w, a, {}, {.threads = threads});
          ASSERT_TRUE(test::BitwiseEqual(got.d.data(), want.d.data(), want.d.size() * 4))
              << Repro(*kernel, w, {.threads = threads});
        }
      }
    }
  }
}

/// Every panel is computed once whatever the number of panels, of row tiles and of workers: the
/// cutting into tasks has empty ones. With many row tiles, workers have rows of their own.
TEST_P(GemmInt8, EveryNumberOfPanelsIsCoveredByTheTasksOfEveryThreadCount) {
  Kernel& kernel = *Runnable(type()).front();
  for (const int n : {16, 17, 48, 80, 112, 144, 208, 400, 1000}) {
    const Weights w = RandomWeights(type(), n, k(1), 600 + n);
    for (const int m : {1, 25, 200, 393}) {
      const auto a = test::RandomFloats(static_cast<std::size_t>(m) * w.k, 700 + n);
      const Output want = Multiply(kernel, w, a, {}, {.m = m, .threads = 1});
      for (const int threads : {2, 3}) {
        const Output got = Multiply(kernel, w, a, {}, {.m = m, .threads = threads});
        ASSERT_TRUE(test::BitwiseEqual(got.d.data(), want.d.data(), want.d.size() * 4))
            << Repro(kernel, w, {.m = m, .threads = threads});
      }
    }
  }
}

/// One row of A with a single 1: d = 1 / 127, q = 127, so D is a column of W to within two
/// roundings. Finds any value in the wrong place of the pack.
TEST_P(GemmInt8, OneHotActivationsReadTheWeightsBack) {
  const Weights w = RandomWeights(type(), 19, k(9), 16);
  std::vector<float> a(static_cast<std::size_t>(w.k) * w.k, 0.0f);
  for (int i = 0; i < w.k; ++i) a[static_cast<std::size_t>(i) * w.k + i] = 1.0f;
  for (Kernel* kernel : Runnable(type())) {
    const Output got = Multiply(*kernel, w, a, {}, {.m = w.k});
    for (int i = 0; i < w.k; ++i) {
      for (int j = 0; j < w.n; ++j) {
        const double want = w.values[static_cast<std::size_t>(j) * w.k + i];
        // q4_1 adds d * q and m apart: their sizes bound the rounding, not their sum's.
        ASSERT_NEAR(got.d[static_cast<std::size_t>(i) * w.n + j], want,
                    2e-7 * (std::fabs(want) + 0.5))
            << kernel->name() << " k=" << i << " n=" << j;
      }
    }
  }
}

/// Puts the f16 `half` in place of the scale of a block or, where that is a byte, `power`.
void PutScale(std::uint8_t* block, const BlockFormat& format, std::uint16_t half,
              std::uint8_t power) {
  if (format.scale == Factor::kPowerOfTwo) {
    block[format.scale_at] = power;
  } else {
    std::memcpy(block + format.scale_at, &half, sizeof half);
  }
}

/// Every code with every scale sign, against activations of full size and equal sign: where 16-bit
/// sums would saturate.
TEST_P(GemmInt8, NoCodePointSaturates) {
  Weights w{type(), 64, k(8), {}, {}};
  w.bytes.resize(static_cast<std::size_t>(w.n) * w.row_bytes());
  const std::size_t block_bytes = static_cast<std::size_t>(GetTypeInfo(type()).block_bytes);
  const std::uint16_t one = 0x3c00;
  for (std::size_t start = 0, block = 0; start < w.bytes.size(); start += block_bytes, ++block) {
    std::uint8_t* p = w.bytes.data() + start;
    for (std::size_t i = 0; i < block_bytes; ++i) p[i] = static_cast<std::uint8_t>(i + 37 * block);
    // Some rows all lowest, some all highest codes.
    const std::size_t row = start / w.row_bytes();
    const bool q8 = type() == DataType::kQ8_0;
    if (row % 8 == 1) std::fill_n(p, block_bytes, q8 ? 0x80 : 0x00);
    if (row % 8 == 2) std::fill_n(p, block_bytes, q8 ? 0x7f : 0xff);
    PutScale(p, format(), one, 128);
    if (format().min_at >= 0) std::memcpy(p + format().min_at, &one, 2);
    if (type() == DataType::kQ6_K) {
      for (int i = 0; i < 16; ++i)
        p[offsetof(BlockQ6_K, scales) + static_cast<std::size_t>(i)] =
            static_cast<std::uint8_t>(16 * (static_cast<int>(row) + i) - 128);
    }
  }
  Decode(w);
  const int m = 6;
  std::vector<float> a(static_cast<std::size_t>(m) * w.k);
  for (int i = 0; i < m; ++i) {
    for (int x = 0; x < w.k; ++x) {
      const float sign = i == 0                         ? 1.0f
                         : i == 1                       ? -1.0f
                         : (x * 7 + i * x / 3) % 2 == 0 ? 1.0f
                                                        : -1.0f;
      a[static_cast<std::size_t>(i) * w.k + x] =
          sign * (i < 4 ? 127.0f : 126.0f - static_cast<float>(x % 5));
    }
  }
  const Call call{.m = m};
  const Expected want = Oracle(w, a, {}, call);
  for (Kernel* kernel : Runnable(type()))
    ExpectMatches(Multiply(*kernel, w, a, {}, call), want, Repro(*kernel, w, call));
}

TEST_P(GemmInt8, ExtremeScalesOfWeightsAndActivations) {
  Weights w = RandomWeights(type(), 20, k(2), 17);
  const std::size_t block_bytes = static_cast<std::size_t>(GetTypeInfo(type()).block_bytes);
  const std::uint16_t scales[] = {0x0000, 0x0001, 0x03ff, 0x0400,
                                  0x7bff, 0x8001, 0xfbff};     // zero, subnormal, largest
  const std::uint8_t powers[] = {0, 1, 2, 64, 128, 140, 144};  // subnormal, to as large as f16 goes
  for (std::size_t start = 0, i = 0; start < w.bytes.size(); start += block_bytes, ++i) {
    PutScale(w.bytes.data() + start, format(), scales[i % 7], powers[i % 7]);
  }
  Decode(w);
  std::vector<float> a = test::RandomFloats(8 * static_cast<std::size_t>(w.k), 18);
  const float factors[] = {0.0f, 1e-40f, 0x1p-99f, 1e-20f, 1.0f, 1e10f, 1e25f, 0.0f};
  for (int i = 0; i < 8; ++i) {
    for (int x = 0; x < w.k; ++x) a[static_cast<std::size_t>(i) * w.k + x] *= factors[i];
  }
  a[7 * static_cast<std::size_t>(w.k) + 33] = 5.0f;  // a zero block beside one that is not
  const Call call{.m = 8};
  Expected want = Oracle(w, a, {}, call);
  for (int j = 0; j < w.n; ++j) {
    // Blocks below 2^-100 count as zero: that is more than half a step.
    want.loose[static_cast<std::size_t>(w.n + j)] += 1e-25;
  }
  for (Kernel* kernel : Runnable(type()))
    ExpectMatches(Multiply(*kernel, w, a, {}, call), want, Repro(*kernel, w, call));
}

TEST_P(GemmInt8, NotFiniteActivationsMakeTheirWholeRowNanAndNoOther) {
  const Weights w = RandomWeights(type(), 40, k(3), 19);
  for (const float bad : {kNan, -kNan, kInf, -kInf}) {
    for (const int at : {0, 31, 32, w.k - 1}) {
      auto a = test::RandomFloats(13 * static_cast<std::size_t>(w.k), 20);
      a[5 * static_cast<std::size_t>(w.k) + at] = bad;
      for (Kernel* kernel : Runnable(type())) {
        const Output got = Multiply(*kernel, w, a, {}, {.m = 13});
        for (std::size_t i = 0; i < got.d.size(); ++i) {
          ASSERT_EQ(std::isnan(got.d[i]), i / got.columns == 5)
              << kernel->name() << " bad=" << bad << " at " << at;
        }
      }
    }
  }
}

TEST_P(GemmInt8, NanPassesTheGatedSilu) {
  const Weights w = RandomWeights(type(), 64, k(3), 19);
  auto a = test::RandomFloats(4 * static_cast<std::size_t>(w.k), 20);
  a[2 * static_cast<std::size_t>(w.k)] = kNan;
  for (Kernel* kernel : Runnable(type())) {
    const Output got = Multiply(*kernel, w, a, {}, {.m = 4, .epilogue = Epilogue::kGatedSilu});
    for (std::size_t i = 0; i < got.d.size(); ++i)
      ASSERT_EQ(std::isnan(got.d[i]), i / got.columns == 2) << kernel->name();
  }
}

TEST_P(GemmInt8, NotFiniteWeightScalesReachTheirColumnOnly) {
  if (format().scale == Factor::kPowerOfTwo) GTEST_SKIP() << "its scales are all finite";
  Weights w = RandomWeights(type(), 33, k(2), 21);
  const std::uint16_t nan = 0x7e00;
  const auto d_at = static_cast<std::size_t>(format().scale_at);
  std::memcpy(w.bytes.data() + 17 * w.row_bytes() + d_at, &nan, 2);
  const auto a = test::RandomFloats(4 * static_cast<std::size_t>(w.k), 22);
  for (Kernel* kernel : Runnable(type())) {
    const Output got = Multiply(*kernel, w, a, {}, {.m = 4});
    for (std::size_t i = 0; i < got.d.size(); ++i)
      ASSERT_EQ(std::isnan(got.d[i]), i % 33 == 17) << kernel->name();
  }
}

TEST_P(GemmInt8, PackedWeightsTakeTheBytesOfTheFile) {
  for (const auto& [n, blocks] : {std::pair{960, 18}, {576, 48}, {49152, 18}}) {
    const int depth = k(blocks);
    const MatrixLayout b{
        .type = type(), .order = Order::kColMajor, .rows = depth, .cols = n, .ld = depth};
    const std::size_t file = BytesOf(type(), depth) * static_cast<std::size_t>(n);
    const std::size_t packed = Runnable(type()).front()->PackedBytes(b);
    // An integer of 6 bits takes a byte; of 4 bits, two share one. A panel ends at a cache line.
    const bool scales = format().scale == Factor::kF16TimesInt;
    const bool mins = format().min == Factor::kF16TimesInt;
    const int integers = format().sub_blocks() * ((scales ? 1 : 0) + (mins ? 1 : 0));
    const int spare = format().integer_bits == 4 ? 0 : integers * (8 - format().integer_bits) / 8;
    const std::size_t content = file + static_cast<std::size_t>(spare) *
                                           static_cast<std::size_t>(n) *
                                           static_cast<std::size_t>(depth / format().elements);
    EXPECT_GE(packed, content);
    EXPECT_LE(packed, content + 63 * static_cast<std::size_t>(n / 16));
  }
}

TEST_P(GemmInt8, PackReadsRowsThatLieApart) {
  const Weights w = RandomWeights(type(), 21, k(2), 23);
  Kernel& kernel = *Runnable(type()).front();
  const MatrixLayout tight{
      .type = type(), .order = Order::kColMajor, .rows = w.k, .cols = w.n, .ld = w.k};
  MatrixLayout apart = tight;
  apart.ld = 3 * w.k;
  // Odd address; the last row ends where the allocation does, so that a read beyond it shows under
  // AddressSanitizer.
  std::vector<std::uint8_t> wide(
      1 + 3 * w.row_bytes() * (static_cast<std::size_t>(w.n) - 1) + w.row_bytes(), 0xff);
  for (int i = 0; i < w.n; ++i) {
    std::memcpy(wide.data() + 1 + 3 * w.row_bytes() * i, w.bytes.data() + w.row_bytes() * i,
                w.row_bytes());
  }
  Buffer one = Buffer::Make(kernel.PackedBytes(tight)),
         two = Buffer::Make(kernel.PackedBytes(apart));
  ASSERT_TRUE(kernel.PackB(w.bytes.data(), tight, one.data(), {}));
  ASSERT_TRUE(kernel.PackB(wide.data() + 1, apart, two.data(), {}));
  EXPECT_TRUE(test::BitwiseEqual(one.data(), two.data(), kernel.PackedBytes(tight)));
}

TEST_P(GemmInt8, RefusesWhatItCannotDo) {
  Kernel& kernel = *Runnable(type()).front();
  GemmDesc p;
  p.m = 3, p.n = 32, p.k = k(2), p.type_b = type(), p.pack_b = kPackAny;
  ASSERT_FALSE(kernel.IsFeasible(p));
  const auto reason = [&](auto change) {
    GemmDesc q = p;
    change(q);
    const auto no = kernel.IsFeasible(q);
    return no ? ReasonName(no->reason) : "feasible";
  };
  EXPECT_EQ(reason([](GemmDesc& q) { q.k += 16; }), "shape");
  EXPECT_EQ(reason([](GemmDesc& q) { q.precision = Precision::kF32; }), "precision");
  EXPECT_EQ(reason([](GemmDesc& q) { q.precision = Precision::kI8; }), "feasible");
  EXPECT_EQ(reason([](GemmDesc& q) { q.guarantee = Guarantee::kBatchInvariant; }), "feasible");
  EXPECT_EQ(reason([](GemmDesc& q) { q.pack_b = kPackPlain; }), "pack");
  EXPECT_EQ(reason([](GemmDesc& q) { q.type_a = DataType::kBF16; }), "type");
  EXPECT_EQ(reason([](GemmDesc& q) { q.type_a = DataType::kI8X32; }), "type");
  EXPECT_EQ(reason([](GemmDesc& q) { q.order_c = Order::kColMajor; }), "order");
  EXPECT_EQ(reason([](GemmDesc& q) { q.n = 48, q.epilogue = Epilogue::kGatedSilu; }), "shape");
}

/// What was rounded to int8 before loses nothing here, whatever precision the caller asks for.
TEST_P(GemmInt8, TakesRoundedActivationsUnderEveryPrecision) {
  for (Kernel* kernel : Runnable(type())) {
    if (kernel->desc().type_a != Bit(DataType::kI8X32)) continue;
    GemmDesc p;
    p.m = 3, p.n = 32, p.k = k(2), p.type_a = DataType::kI8X32, p.type_b = type();
    p.pack_b = kPackAny;
    for (const Precision precision : {Precision::kAuto, Precision::kF32, Precision::kI8}) {
      p.precision = precision;
      EXPECT_FALSE(kernel->IsFeasible(p)) << kernel->name();
    }
    p.type_a = DataType::kF32;
    EXPECT_TRUE(kernel->IsFeasible(p)) << kernel->name();
  }
}

TEST_P(GemmInt8, LaunchNamesWhatIsWrongWithTheCall) {
  Kernel& kernel = *Runnable(type()).front();
  const int depth = k(2);
  Buffer memory = Buffer::Make(1 << 16);
  GemmArgs args;
  args.a = args.b = args.d = memory.data();
  args.a_layout = {.rows = 1, .cols = depth, .ld = depth};
  args.b_layout = {.type = type(),
                   .order = Order::kColMajor,
                   .rows = depth,
                   .cols = 16,
                   .ld = depth,
                   .pack = kernel.desc().pack_b};
  args.d_layout = {.rows = 1, .cols = 16, .ld = 16};
  Workspace small{.partials = memory.data(), .partials_size = 8};
  Status status = kernel.Launch(args, {.kernel = &kernel}, small, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("8 bytes of partials"), std::string::npos)
      << status.error().message;
  Workspace enough{.partials = memory.data(), .partials_size = 1 << 16};
  status = kernel.Launch(args, {.kernel = &kernel, .splits = 2}, enough, {});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("splits = 2"), std::string::npos);
  args.b_layout.pack = kPackPlain;
  status = kernel.Launch(args, {.kernel = &kernel}, enough, {});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("packed as plain"), std::string::npos);
  EXPECT_FALSE(kernel.PackB(
      memory.data(),
      {.type = DataType::kF32, .order = Order::kColMajor, .rows = depth, .cols = 16, .ld = depth},
      memory.data(), {}));
  EXPECT_FALSE(kernel.PackB(
      memory.data(), {.type = type(), .order = Order::kColMajor, .rows = 16, .cols = 16, .ld = 16},
      memory.data(), {}));
}

}  // namespace
}  // namespace tilewright
