// The CUDA device and the compiled kernels on a GPU, through the stages: every candidate of a
// problem against float64. Skipped where there is no GPU; kernels come from NVRTC or from the
// bundle that TILEWRIGHT_GPU_BUNDLE names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/block_format.h"
#include "core/formats/random_blocks.h"
#include "device/cuda/block_types.h"
#include "engine/compiled/gpu_store.h"
#include "ops/gemm/base/verified_test_util.h"
#include "ops/gemm/cuda/gemm_qw/rounded_weights.h"
#include "ops/gemm/cuda/kernels/kernels.h"
#include "ops/norm/cuda/kernels.h"
#include "tilewright/cuda/gemv_params.h"
#include "tilewright/cuda_device.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/norm.h"
#include "tilewright/tilewright.h"

namespace tilewright::cuda {
namespace {

using ::testing::HasSubstr;

/// What all tests share.
struct Machine : test::GpuStore {
  Registry gemm;
  norm::Registry norm;

  Machine() : GpuStore(AllKernelFamilies()) {
    if (device == nullptr) return;
    EXPECT_TRUE(AddCudaGemm(gemm, *store, arch()));
    EXPECT_TRUE(norm::AddCudaKernels(norm, *store, arch()));
  }
};

class GpuTest : public test::GpuFixture<Machine> {
 protected:
  static Device& device() { return *machine_->device; }
  static Stream stream() { return device().default_stream(); }

  static DeviceMemory Upload(const std::vector<std::byte>& bytes) {
    DeviceMemory memory = device().Allocate(bytes.size()).value();
    EXPECT_TRUE(device().Upload(memory.data(), bytes.data(), bytes.size(), stream()));
    EXPECT_TRUE(device().Synchronize(stream()));
    return memory;
  }
};

/// Values of a type, encoded and exactly decoded.
struct Data {
  std::vector<std::byte> bytes;
  std::vector<double> values;
};
Data RandomData(DataType type, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  Data data;
  data.bytes.resize(BytesOf(type, count));
  data.values.resize(static_cast<std::size_t>(count));
  if (GetTypeInfo(type).block_quantised) {
    RandomBlocks(type, count / GetTypeInfo(type).block_elements, random, data.bytes.data());
  } else {
    std::vector<float> floats(data.values.size());
    for (float& value : floats) value = static_cast<float>(random.Below(2001)) / 1000 - 1;
    EXPECT_TRUE(EncodeRow(type, floats.data(), count, data.bytes.data()));
  }
  EXPECT_TRUE(DecodeRow(type, data.bytes.data(), count, data.values.data()));
  return data;
}

/// Memory of the device full of NaN between two bands that nobody may write.
class Output {
 public:
  Output(Device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), memory_(device.Allocate(bytes + 2 * kBand).value()) {
    EXPECT_TRUE(device.Fill(memory_.data(), 0xff, memory_.size(), device.default_stream()));
  }
  void* data() const { return memory_.as<std::byte>() + kBand; }
  /// What was written; fails the test where it was beyond.
  std::vector<std::byte> Read() const {
    std::vector<std::byte> all(memory_.size());
    const Stream stream = device_.default_stream();
    EXPECT_TRUE(device_.Download(all.data(), memory_.data(), all.size(), stream));
    const Status done = device_.Synchronize(stream);
    EXPECT_TRUE(done) << done.error().message;
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xff}; };
    EXPECT_TRUE(std::all_of(all.begin(), all.begin() + kBand, untouched));
    EXPECT_TRUE(std::all_of(all.end() - kBand, all.end(), untouched));
    return {all.begin() + kBand, all.begin() + kBand + static_cast<std::ptrdiff_t>(bytes_)};
  }

 private:
  static constexpr std::size_t kBand = 4096;
  Device& device_;
  std::size_t bytes_;
  DeviceMemory memory_;
};

/// Half of the smallest number: what rounding costs where results are subnormal.
double HalfSmallest(DataType type) { return type == DataType::kF16 ? 0x1p-25 : 0; }
double Roundoff(DataType type) {
  return type == DataType::kF32 ? 0x1p-24 : type == DataType::kF16 ? 0x1p-11 : 0x1p-8;
}

/// Every element is `want`, but for one rounding, for sums of f32 over `magnitude`, and for `slack`
/// where there is one.
void ExpectNear(const std::vector<std::byte>& got, DataType type, const std::vector<double>& want,
                const std::vector<double>& magnitude, std::string_view kernel,
                const std::vector<double>& slack = {}) {
  std::vector<double> values(want.size());
  ASSERT_TRUE(DecodeRow(type, got.data(), static_cast<std::int64_t>(want.size()), values.data()));
  constexpr double kSums = 2e-6;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double allowed = 1.01 * Roundoff(type) * std::abs(want[i]) + HalfSmallest(type) +
                           kSums * magnitude[i] +
                           (slack.empty() ? 0 : (1 + Roundoff(type)) * slack[i]);
    ASSERT_LE(std::abs(values[i] - want[i]), allowed)
        << kernel << ": element " << i << " is " << values[i] << ", not " << want[i];
  }
}

/// What rounding `x` to int8 may change in its product with `w`: half a step of a 127th of the
/// largest of 32.
double Int8Slack(const double* x, const double* w, int k) {
  double slack = 0;
  for (int first = 0; first < k; first += 32) {
    double largest = 0, weights = 0;
    for (int l = first; l < std::min(k, first + 32); ++l) {
      largest = std::max(largest, std::abs(x[l]));
      weights += std::abs(w[l]);
    }
    slack += 1.0001 * largest / 254 * weights;
  }
  return slack;
}

/// silu(gate) * up of the dot products of `m` rows of `n`, and what their errors carry into it.
void Gate(int m, int n, std::vector<double>& dots, std::vector<double>& magnitude,
          std::vector<double>& slack) {
  std::vector<double> gated, carried, carried_slack;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n / 2; ++j) {
      const auto gate =
          static_cast<std::size_t>(i * n + j / kGatedBlock * 2 * kGatedBlock + j % kGatedBlock);
      const std::size_t up = gate + kGatedBlock;
      const double silu = dots[gate] / (1 + std::exp(-dots[gate]));
      gated.push_back(silu * dots[up]);
      // |silu'| <= 1.1
      carried.push_back(1.1 * magnitude[gate] * std::abs(dots[up]) +
                        std::abs(silu) * magnitude[up] + std::abs(gated.back()));
      carried_slack.push_back(1.1 * slack[gate] * (std::abs(dots[up]) + slack[up]) +
                              std::abs(silu) * slack[up]);
    }
  }
  dots = gated, magnitude = carried, slack = carried_slack;
}

constexpr float kEpsilon = 1e-5f;

/// What is multiplied: the rows of A, normalised where the problem says so.
std::vector<double> RowsOf(const GemmDesc& desc, std::vector<double> rows,
                           const std::vector<double>& norm) {
  if (desc.prologue == Prologue::kNone) return rows;
  const auto k = static_cast<std::size_t>(desc.k);
  for (std::size_t first = 0; first < rows.size(); first += k) {
    double squares = 0;
    for (std::size_t i = 0; i < k; ++i) squares += rows[first + i] * rows[first + i];
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(k) + static_cast<double>(kEpsilon));
    for (std::size_t i = 0; i < k; ++i) rows[first + i] *= scale * norm[i];
  }
  return rows;
}

/// What a product has to be, what its errors are a part of, and what rounding its rows to int8 may
/// change.
struct Product {
  std::vector<double> want, magnitude, slack;
};
Product ProductOf(const GemmDesc& desc, const std::vector<double>& rows,
                  const std::vector<double>& weights, const std::vector<double>& addend) {
  const auto count = static_cast<std::size_t>(desc.m) * static_cast<std::size_t>(desc.n);
  Product product{std::vector<double>(count), std::vector<double>(count),
                  std::vector<double>(count)};
  auto& [want, magnitude, slack] = product;
  for (std::size_t i = 0; i < count; ++i) {
    if (!addend.empty()) want[i] = addend[i], magnitude[i] = std::abs(want[i]);
    const double* row = rows.data() + i / static_cast<std::size_t>(desc.n) * desc.k;
    const double* col = weights.data() + i % static_cast<std::size_t>(desc.n) * desc.k;
    for (int l = 0; l < desc.k; ++l) {
      want[i] += row[l] * col[l];
      magnitude[i] += std::abs(row[l] * col[l]);
    }
    slack[i] = Int8Slack(row, col, desc.k);
  }
  if (desc.epilogue == Epilogue::kGatedSilu) Gate(desc.m, desc.n, want, magnitude, slack);
  return product;
}

/// Weights in blocks as gemm_qw and gemm_qr multiply them, which is all that they may lose.
std::vector<double> Rounded(DataType type, const Data& weights) {
  std::vector<double> rounded = weights.values;
  test::RoundAsGemmQw(type, weights.bytes.data(), std::span(rounded));
  return rounded;
}

/// Runs every feasible candidate twice; how many there were.
int CheckProducts(Machine& machine, const GemmDesc& desc) {
  Device& device = *machine.device;
  const Data a = RandomData(desc.type_a, std::int64_t{1} * desc.m * desc.k, 1);
  const Data b = RandomData(desc.type_b, std::int64_t{1} * desc.n * desc.k, 2);
  const Data norm = RandomData(DataType::kF32, desc.k, 4);
  const auto upload = [&](const Data& data) {
    DeviceMemory memory = device.Allocate(data.bytes.size()).value();
    EXPECT_TRUE(device.Upload(memory.data(), data.bytes.data(), data.bytes.size(),
                              device.default_stream()));
    EXPECT_TRUE(device.Synchronize(device.default_stream()));
    return memory;
  };
  const DeviceMemory dev_a = upload(a), dev_b = upload(b), dev_norm = upload(norm);
  const std::vector<double> rows = RowsOf(desc, a.values, norm.values);
  auto count = static_cast<std::size_t>(desc.m) * static_cast<std::size_t>(desc.n);
  const bool adds = desc.scaling != Scaling::kOneZero;
  const Data c = RandomData(desc.type_c, static_cast<std::int64_t>(count), 3);
  const DeviceMemory dev_c = upload(c);
  const auto product_of = [&](const std::vector<double>& weights) {
    return ProductOf(desc, rows, weights, adds ? c.values : std::vector<double>());
  };
  const Product exact = product_of(b.values);
  std::optional<Product> of_rounded;
  const int columns = desc.epilogue == Epilogue::kGatedSilu ? desc.n / 2 : desc.n;
  count = exact.want.size();
  GemmArgs args{.a = dev_a.data(), .b = dev_b.data()};
  args.a_layout = {desc.type_a, Order::kRowMajor, desc.m, desc.k, desc.k};
  args.b_layout = {desc.type_b, Order::kColMajor, desc.k, desc.n, desc.k};
  args.d_layout = {desc.type_c, Order::kRowMajor, desc.m, columns, columns};
  args.c_layout = args.d_layout;
  args.epilogue = desc.epilogue;
  if (desc.prologue != Prologue::kNone) {
    args.prologue = desc.prologue;
    args.norm = dev_norm.data();
    args.type_norm = DataType::kF32;
    args.epsilon = kEpsilon;
  }
  if (adds) args.beta = 1, args.c = dev_c.data();
  int ran = 0;
  const GemmCandidates all = Feasible(Validate(desc).value(), machine.gemm, device.spec());
  for (const auto& candidate : all.all()) {
    if (!candidate.feasible()) continue;
    const std::string name(candidate.kernel->name());
    Pins pins;
    pins.by_problem[{"gemm", KeyOf(desc)}] = {name, SpecText(candidate.specs[0])};
    const auto plan = Bind(Choose(all, nullptr, &pins).value(), device);
    EXPECT_TRUE(plan) << plan.error().message;
    if (!plan) continue;
    const Output first(device, BytesOf(desc.type_c, static_cast<std::int64_t>(count)));
    const Output second(device, BytesOf(desc.type_c, static_cast<std::int64_t>(count)));
    const WorkspaceSize size = plan->workspace();
    const Output partials(device, size.partials), barriers(device, size.barriers);
    EXPECT_TRUE(device.Fill(barriers.data(), 0, size.barriers, device.default_stream()));
    Workspace workspace;
    workspace.partials = partials.data();
    workspace.partials_size = size.partials;
    workspace.barriers = barriers.data();
    workspace.barriers_size = size.barriers;
    for (const Output* output : {&first, &second}) {
      args.d = output->data();
      const Status launched = tilewright::Run(*plan, args, workspace, device.default_stream());
      EXPECT_TRUE(launched) << launched.error().message;
    }
    static_cast<void>(partials.Read());
    const std::vector<std::byte> counters = barriers.Read();
    EXPECT_TRUE(std::all_of(counters.begin(), counters.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }))
        << name << " leaves counters for the next launch";
    const std::vector<std::byte> got = first.Read();
    // Only what rounds its activations may be off by what that costs.
    const bool int8 = candidate.kernel->desc().activations == Precision::kI8;
    const bool rounds = name.starts_with("gemm_qw.") || name.starts_with("gemm_qr.");
    if (rounds && !of_rounded) of_rounded = product_of(Rounded(desc.type_b, b));
    const Product& product = rounds ? *of_rounded : exact;
    ExpectNear(got, desc.type_c, product.want, product.magnitude, name,
               int8 ? product.slack : std::vector<double>());
    EXPECT_EQ(got, second.Read()) << name << " gives other bits the second time";
    test::NoteProduct(candidate.kernel->info(), candidate.kernel->desc(), desc, device.spec());
    ++ran;
  }
  return ran;
}

GemmDesc Problem(int m, int n, int k, DataType a, DataType b, DataType d) {
  GemmDesc desc;
  desc.m = m, desc.n = n, desc.k = k;
  desc.type_a = a, desc.type_b = b, desc.type_c = d;
  desc.align_a = desc.align_c = 4;
  // Lines of blocks need not be multiples of 16 bytes: nine of q6_k are 1,890.
  const std::size_t line = BytesOf(b, k);
  for (desc.align_b = 4; b != a && line % (std::size_t{1} << desc.align_b) != 0;) --desc.align_b;
  return desc;
}

TEST_F(GpuTest, EveryProductOfPlainWeightsIsRight) {
  const auto kBF16 = DataType::kBF16;
  for (const int m : {1, 7, 64, 200}) {
    EXPECT_GT(CheckProducts(*machine_, Problem(m, 328, 520, kBF16, kBF16, kBF16)), 10) << m;
  }
  EXPECT_GT(CheckProducts(*machine_, Problem(3, 328, 520, DataType::kF32, kBF16, DataType::kF32)),
            5);
  EXPECT_GT(CheckProducts(*machine_, Problem(65, 328, 520, kBF16, kBF16, DataType::kF32)), 2);
  EXPECT_GT(CheckProducts(*machine_,
                          Problem(65, 328, 520, DataType::kF16, DataType::kF16, DataType::kF16)),
            2);
}

// More tiles than run at once, of which the last ones of a cluster lie outside of D.
TEST_F(GpuTest, TilesInSeveralRoundsAreRight) {
  const auto kBF16 = DataType::kBF16;
  EXPECT_GT(CheckProducts(*machine_, Problem(600, 3000, 520, kBF16, kBF16, kBF16)), 10);
  EXPECT_GT(CheckProducts(*machine_, Problem(2100, 2200, 200, kBF16, kBF16, kBF16)), 10);
}

TEST_F(GpuTest, FewTilesOfALongKAreSharedByParts) {
  for (const int m : {5, 32, 64, 100}) {
    for (const int k : {4096, 4120}) {
      GemmDesc desc = Problem(m, 200, k, DataType::kBF16, DataType::kBF16, DataType::kBF16);
      EXPECT_GT(CheckProducts(*machine_, desc), 10) << KeyOf(desc);
      desc.scaling = Scaling::kOneOne;
      EXPECT_GT(CheckProducts(*machine_, desc), 5) << KeyOf(desc);
    }
  }
}

TEST_F(GpuTest, EveryProductOfOddSizesAndPairsOfTypesIsRightAlsoWithASum) {
  constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16, DataType::kF16};
  for (const DataType a : kTypes) {
    for (const DataType b : kTypes) {
      for (const DataType d : {a, DataType::kF32}) {
        for (const Scaling scaling : {Scaling::kOneZero, Scaling::kOneOne}) {
          for (const int m : {1, 13, 130}) {
            GemmDesc desc = Problem(m, 71, 333, a, b, d);
            desc.align_a = desc.align_b = desc.align_c = 0;
            desc.scaling = scaling;
            EXPECT_GE(CheckProducts(*machine_, desc), 2) << KeyOf(desc);
          }
        }
      }
    }
  }
}

TEST_F(GpuTest, EveryProductOfBlocksGivesF32AndAddsASum) {
  for (const DataType type : cuda::kBlockTypes) {
    for (const int m : {1, 9}) {
      GemmDesc desc = Problem(m, 100, 2048, DataType::kBF16, type, DataType::kF32);
      EXPECT_GE(CheckProducts(*machine_, desc), 2) << KeyOf(desc);
      for (const DataType x : {DataType::kBF16, DataType::kF32}) {
        desc.type_a = desc.type_c = x;
        desc.scaling = Scaling::kOneOne;
        EXPECT_GE(CheckProducts(*machine_, desc), 2) << KeyOf(desc);
        desc.scaling = Scaling::kOneZero;
      }
    }
  }
}

/// The least that rows of a block format are aligned to.
int RowAlignmentLog2(DataType type) {
  const int bytes = cuda::GemvRowAlignment(GetTypeInfo(type).block_bytes);
  return std::countr_zero(static_cast<unsigned>(bytes));
}

TEST_F(GpuTest, FewRowsTimesBlocksAreMultipliedAsIntegers) {
  for (const DataType type : cuda::kBlockTypes) {
    for (const int m : {1, 2, 3, 4}) {
      for (const auto& [n, k] : {std::pair{1, 256}, {577, 768}, {4099, 4096}, {131, 14336}}) {
        GemmDesc desc = Problem(m, n, k, DataType::kBF16, type, DataType::kBF16);
        // What the copy engine reads has rows at multiples of 16 bytes.
        if (m > 1 || k < 4096) desc.align_b = RowAlignmentLog2(type);
        const int any = CheckProducts(*machine_, desc);
        desc.precision = Precision::kBF16;
        const auto exact = Feasible(Validate(desc).value(), machine_->gemm, device().spec());
        EXPECT_GT(any, exact.feasible_count()) << KeyOf(desc);
      }
    }
  }
}

TEST_F(GpuTest, GateAndUpOfOneRowBecomeOneElement) {
  std::vector<DataType> types = {DataType::kBF16, DataType::kF16};
  types.insert(types.end(), cuda::kBlockTypes.begin(), cuda::kBlockTypes.end());
  for (const DataType type : types) {
    for (const DataType x : {DataType::kBF16, DataType::kF32}) {
      for (const int n : {32, 96, 3072}) {
        GemmDesc desc = Problem(1, n, 2304, x, type, x);
        desc.epilogue = Epilogue::kGatedSilu;
        EXPECT_GE(CheckProducts(*machine_, desc), 1) << KeyOf(desc);
      }
    }
  }
}

TEST_F(GpuTest, RowsThatAreNormalisedFirstAreMultipliedAsIntegers) {
  for (const DataType type : cuda::kBlockTypes) {
    for (const auto& [n, k] : {std::pair{32, 256}, {960, 768}, {6144, 4096}, {96, 8192}}) {
      for (const int m : {1, 2, 3, 4}) {
        GemmDesc desc = Problem(m, n, k, DataType::kBF16, type, DataType::kBF16);
        desc.prologue = Prologue::kRmsNorm;
        desc.type_norm = DataType::kF32;
        desc.align_norm = 4;
        EXPECT_GE(CheckProducts(*machine_, desc), 1) << KeyOf(desc);
        if (m > 2) continue;
        desc.type_c = DataType::kF32;  // logits
        EXPECT_GE(CheckProducts(*machine_, desc), 1) << KeyOf(desc);
        if (m > 1) continue;
        desc.type_c = DataType::kBF16;
        desc.epilogue = Epilogue::kGatedSilu;
        EXPECT_GE(CheckProducts(*machine_, desc), 1) << KeyOf(desc);
      }
    }
  }
}

TEST_F(GpuTest, ARowThatIsNormalisedFirstStreamsPlainWeights) {
  for (const DataType type : {DataType::kBF16, DataType::kF16}) {
    for (const auto& [n, k] : {std::pair{1, 8}, {960, 576}, {6144, 4096}, {96, 8200}}) {
      GemmDesc desc = Problem(1, n, k, DataType::kBF16, type, DataType::kBF16);
      desc.prologue = Prologue::kRmsNorm;
      desc.type_norm = DataType::kF32;
      desc.align_norm = 4;
      EXPECT_GE(CheckProducts(*machine_, desc), 1) << KeyOf(desc);
      desc.type_c = DataType::kF32;
      EXPECT_GE(CheckProducts(*machine_, desc), 1) << KeyOf(desc);
      if (n % 32 != 0) continue;
      desc.type_c = DataType::kBF16;
      desc.epilogue = Epilogue::kGatedSilu;
      EXPECT_GE(CheckProducts(*machine_, desc), 1) << KeyOf(desc);
    }
  }
}

TEST_F(GpuTest, OneRowStreamsPlainWeightsOfManyLengths) {
  for (const int k : {8, 264, 1024, 1032, 14336}) {
    for (const int n : {1, 131, 133, 2112, 4099}) {
      if (n > 2000 && k > 10000) continue;
      const GemmDesc desc = Problem(1, n, k, DataType::kBF16, DataType::kBF16, DataType::kBF16);
      EXPECT_GT(CheckProducts(*machine_, desc), 5) << KeyOf(desc);
    }
  }
}

TEST_F(GpuTest, EveryProductOfBlocksIsRight) {
  for (const DataType type : cuda::kBlockTypes) {
    GemmDesc desc = Problem(3, 100, 2048, DataType::kF32, type, DataType::kF32);
    // Rows of 2,048 values are multiples of 16 bytes in all of these formats.
    EXPECT_GT(CheckProducts(*machine_, desc), 5) << DataTypeName(type);
    desc.type_a = desc.type_c = DataType::kBF16;
    EXPECT_GT(CheckProducts(*machine_, desc), 5) << DataTypeName(type);
  }
}

// Rows of W at all places that two bytes allow, tiles cut on all sides, and k in parts.
TEST_F(GpuTest, EveryProductOfAFewDozenRowsTimesBlocksIsRight) {
  constexpr DataType kBF16 = DataType::kBF16;
  for (const DataType type : cuda::kBlockTypes) {
    for (const int m : {2, 17, 70}) {
      for (const DataType out : {kBF16, DataType::kF32}) {
        GemmDesc desc = Problem(m, 200, 4096, kBF16, type, out);
        EXPECT_GE(CheckProducts(*machine_, desc), 3) << KeyOf(desc);
        desc.scaling = Scaling::kOneOne;
        desc.n = 131, desc.k = 768;
        desc.align_b = RowAlignmentLog2(type);
        EXPECT_GE(CheckProducts(*machine_, desc), 2) << KeyOf(desc);
      }
    }
  }
}

TEST_F(GpuTest, EveryNormIsRightAlsoOfHeadsAmongOtherColumns) {
  constexpr std::int64_t kHeads = 5, kRows = 3, kLine = 40000;
  constexpr float kEpsilon = 1e-5f;
  for (const DataType type : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const std::int64_t cols : {64, 576, 4096, 7000}) {
      for (const bool strided : {false, true}) {
        const std::int64_t line = strided ? kLine : cols * kHeads;
        const Data in = RandomData(type, kRows * line, 3), weight = RandomData(type, cols, 4);
        const DeviceMemory dev_in = Upload(in.bytes), dev_weight = Upload(weight.bytes);
        norm::Args args;
        args.epsilon = kEpsilon;
        args.in = Contiguous(dev_in.data(), type, {cols, kHeads, kRows, 1});
        args.in.stride = {1, cols, line, line * kRows};
        args.weight = Contiguous(dev_weight.data(), type, {cols, 1, 1, 1});
        std::vector<double> want, magnitude;
        for (std::int64_t r = 0; r < kHeads * kRows; ++r) {
          const double* row = in.values.data() + r / kHeads * line + r % kHeads * cols;
          double squares = 0;
          for (std::int64_t c = 0; c < cols; ++c) squares += row[c] * row[c];
          const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + kEpsilon);
          for (std::int64_t c = 0; c < cols; ++c) {
            want.push_back(row[c] * scale * weight.values[static_cast<std::size_t>(c)]);
            magnitude.push_back(std::abs(want.back()));
          }
        }
        args.out = args.in;
        const Output output(device(), BytesOf(type, kHeads * kRows * cols));
        args.out = Contiguous(output.data(), type, {cols, kHeads, kRows, 1});
        const norm::Desc desc = norm::DescOf(args, {}).value();
        const auto all = Feasible(norm::Validate(desc).value(), machine_->norm, device().spec());
        EXPECT_GT(all.feasible_count(), 0);
        for (const auto& candidate : all.all()) {
          if (!candidate.feasible()) continue;
          Pins pins;
          pins.by_problem[{"norm", norm::KeyOf(desc)}] = {std::string(candidate.kernel->name()),
                                                          SpecText(candidate.specs[0])};
          const auto plan = Bind(Choose(all, nullptr, &pins).value(), device());
          ASSERT_TRUE(plan) << plan.error().message;
          Workspace none;
          const Status launched = tilewright::Run(*plan, args, none, stream());
          ASSERT_TRUE(launched) << launched.error().message;
          ExpectNear(output.Read(), type, want, magnitude, candidate.kernel->name());
          ASSERT_TRUE(
              device().Fill(output.data(), 0xff, BytesOf(type, kHeads * kRows * cols), stream()));
        }
      }
    }
  }
}

TEST_F(GpuTest, TwoDevicesOnOneGpuDoNotDisturbEachOther) {
  const auto other = MakeCudaDevice(0).value();
  const DeviceMemory a = device().Allocate(1 << 20).value(), b = other->Allocate(1 << 20).value();
  std::vector<std::uint8_t> of_a(1 << 20), of_b(1 << 20);
  for (std::uint8_t round = 1; round < 20; ++round) {
    ASSERT_TRUE(device().Fill(a.data(), round, a.size(), stream()));
    ASSERT_TRUE(other->Fill(b.data(), round + 100, b.size(), other->default_stream()));
    ASSERT_TRUE(device().Download(of_a.data(), a.data(), a.size(), stream()));
    ASSERT_TRUE(other->Download(of_b.data(), b.data(), b.size(), other->default_stream()));
    ASSERT_TRUE(device().Synchronize(stream()));
    ASSERT_TRUE(other->Synchronize(other->default_stream()));
    EXPECT_EQ(std::count(of_a.begin(), of_a.end(), round), 1 << 20);
    EXPECT_EQ(std::count(of_b.begin(), of_b.end(), round + 100), 1 << 20);
  }
}

TEST_F(GpuTest, MemoryRunsOutWithAWordOnWhatIsFree) {
  const auto refused = device().Allocate(std::size_t{1} << 42);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("are free"));
  EXPECT_TRUE(device().Allocate(1 << 20));
}

// The last: nothing runs in the context afterwards.
TEST_F(GpuTest, ZAKernelThatFaultsLosesTheDeviceAndIsReportedOnce) {
  norm::Args args;
  const DeviceMemory memory = device().Allocate(1 << 16).value();
  args.in = Contiguous(reinterpret_cast<void*>(0x1000), DataType::kF32, {4096, 1, 1, 1});
  args.weight = args.out = Contiguous(memory.data(), DataType::kF32, {4096, 1, 1, 1});
  const norm::Desc desc = norm::DescOf(args, {}).value();
  const auto all = Feasible(norm::Validate(desc).value(), machine_->norm, device().spec());
  const auto plan = Bind(Choose(all, nullptr).value(), device()).value();
  Workspace none;
  ASSERT_TRUE(tilewright::Run(plan, args, none, stream()));
  const Status report = device().Synchronize(stream());
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kInternal);
  EXPECT_THAT(report.error().message, HasSubstr("is lost, nothing runs on it any more"));
  EXPECT_THAT(report.error().message, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  const Status later = tilewright::Run(plan, args, none, stream());
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(later.error().message, HasSubstr("is lost since cuStreamSynchronize"));
  RecordProperty("report", report.error().message);
}

}  // namespace
}  // namespace tilewright::cuda
