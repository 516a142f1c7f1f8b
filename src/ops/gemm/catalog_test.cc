// What the registered kernels say of themselves, and what the panel kernels promise together.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/formats/formats.h"
#include "ops/gemm/test_problem.h"
#include "ops/gemm/test_registry.h"
#include "tilewright/device.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

using test::AllKernels;
using test::Device;
using test::First;
using test::Pool;
using test::TestProblem;

TEST(KernelIds, FollowTheGrammarAndSayWhatTheKernelDeclares) {
  // docs/kernel_ids.md
  std::string type = "(any|f32|f16|bf16|f64|f8_e4m3|i8|u4|i8x32";
  for (const BlockFormat& format : kFormats) type.append("|").append(format.name);
  type += ")";
  const std::regex grammar(
      "gemm\\." + type + "_" + type + "_" + type +
      "\\.[tnx]{2}\\.(scalar|avx2|avx512|avx512vnni|avx512bf16|amx|onednn)"
      "\\.((?:gemv)?[0-9]+x[0-9]+(?:x[0-9]+)?)\\.([a-z0-9_]+)((?:\\.[a-z0-9]+)*)");
  std::set<std::string> seen;
  for (const Kernel* kernel : AllKernels().kernels()) {
    const std::string name(kernel->name());
    std::smatch match;
    ASSERT_TRUE(std::regex_match(name, match, grammar)) << name;
    EXPECT_TRUE(seen.insert(name).second) << name;
    if (match[1] != "any") {
      EXPECT_EQ(kernel->desc().type_a, Bit(*ParseDataType(match[1].str()))) << name;
    }
    if (match[2] != "any") {
      EXPECT_EQ(kernel->desc().type_b, Bit(*ParseDataType(match[2].str()))) << name;
    }
    EXPECT_EQ(match[6].str(), PackName(kernel->desc().pack_b)) << name;
    const bool grouped = (kernel->desc().striding_b & Bit(Striding::kFlat)) == 0;
    EXPECT_EQ(match[7].str().ends_with(".grouped"), grouped) << name;
    EXPECT_GE(kernel->info().fingerprint.size(), 16u) << name;
  }
  EXPECT_GT(seen.size(), 40u);
}

TEST(KernelIds, AReferenceKernelTakesEveryPlainProblem) {
  Random random(110);
  for (int turn = 0; turn < 200; ++turn) {
    GemmDesc d;
    constexpr DataType kFloats[] = {DataType::kF32, DataType::kF16, DataType::kBF16};
    const auto weights = random.Below(3 + kFormats.size());
    d.type_a = kFloats[random.Below(3)],
    d.type_b = weights < 3 ? kFloats[weights] : kFormats[weights - 3].type,
    d.type_c = kFloats[random.Below(3)];
    d.order_a = static_cast<Order>(random.Below(2)),
    d.order_c = static_cast<Order>(random.Below(2));
    const int block = GetTypeInfo(d.type_b).block_elements;
    d.order_b = block > 1 ? Order::kColMajor : static_cast<Order>(random.Below(2));
    d.m = 1 + static_cast<int>(random.Below(4000)), d.n = 1 + static_cast<int>(random.Below(50000));
    d.k = block * (1 + static_cast<int>(random.Below(100)));
    d.scaling = static_cast<Scaling>(random.Below(3));
    bool taken = false;
    for (const Kernel* kernel : AllKernels().kernels())
      taken |= kernel->info().reference && !kernel->IsFeasible(d);
    EXPECT_TRUE(taken) << KeyOf(d);
  }
}

// One fma chain over ascending k for every element: the same bits from AVX2 and AVX-512, packed and
// plain.
TEST(PanelKernels, AgreeBitwiseAcrossInstructionSetsAndLayouts) {
  std::map<DataType, std::vector<Kernel*>> families;
  for (Kernel* kernel : test::DenseKernels()) {
    const KernelDesc& k = kernel->desc();
    const bool panel = k.tile_n == 32 && k.activations == Precision::kF32 && !k.split_k &&
                       kernel->info().provider == Provider::kOwn;
    if (panel && kernel->info().batch_invariant && !kernel->CheckDevice(Device()))
      families[First<DataType>(k.type_b)].push_back(kernel);
  }
  for (const auto& [type, kernels] : families) {
    GemmDesc d;
    d.type_b = type;
    d.m = 31, d.n = 75, d.k = 512;
    TestProblem problem(d, {});
    std::vector<unsigned char> first;
    for (Kernel* kernel : kernels) {
      ASSERT_EQ(problem.Run(*kernel, {}, Pool(2)), "") << kernel->name();
      if (first.empty()) first = problem.ResultBytes();
      EXPECT_EQ(problem.ResultBytes(), first)
          << kernel->name() << " and " << kernels.front()->name();
    }
  }
}

// Activations with a single 1 pick one k of the weights: the product must be the decoded weight to
// the bit.
/// Where the model finds that memory takes the time, several kernels would do; what reads with the widest vectors and
/// leaves weights as they are packed is the fastest.
TEST(PlainWeights, OfFewRowsRunOnOurWidestPanelsWhereNothingWasTuned) {
  DeviceSpec zen5;
  zen5.features = kFeatureAvx2 | kFeatureAvx512 | kFeatureAvx512Vnni | kFeatureAvx512Bf16;
  zen5.isa = Isa::kAvx512;
  zen5.cores = 2;
  zen5.l1d_bytes = 48 << 10, zen5.l2_bytes = 1 << 20, zen5.llc_bytes = 32 << 20;
  zen5.read_gb_s = 49, zen5.f32_gflop_s = 271, zen5.bf16_gflop_s = 500, zen5.i8_gop_s = 1080;
  for (const auto& [n, k] : {std::pair(2048, 2048), {3072, 2048}, {2048, 8192}, {16384, 2048}}) {
    for (const int m : {4, 8, 12, 16, 24}) {
      GemmDesc d;
      d.m = m, d.n = n, d.k = k;
      d.pack_b = kPackAny;
      const auto checked = Validate(d);
      ASSERT_TRUE(checked);
      const auto choice = Choose(Feasible(*checked, AllKernels(), zen5), nullptr);
      ASSERT_TRUE(choice);
      EXPECT_EQ(choice->kernel().name(), "gemm.f32_f32_f32.tn.avx512.12x32.f32x16")
          << m << " x " << n << " x " << k;
    }
  }
}

TEST(PackedWeights, DecodeToTheBitForEveryCodePoint) {
  for (Kernel* kernel : test::DenseKernels()) {
    const KernelDesc& desc = kernel->desc();
    // int8 is near 1, not 1; gemm_int8_test reads those weights back.
    const bool exact =
        desc.activations == Precision::kF32 && (desc.type_a & Bit(DataType::kI8X32)) == 0;
    if (!exact || desc.pack_b == kPackPlain || kernel->CheckDevice(Device())) continue;
    const auto type = First<DataType>(desc.type_b);
    const TypeInfo& info = GetTypeInfo(type);
    const int n = 37, k = std::max(info.block_elements, 32) * (info.block_elements == 256 ? 1 : 4);
    const std::size_t column = BytesOf(type, k);
    std::vector<unsigned char> weights(column * static_cast<std::size_t>(n));
    Random random(7);
    std::vector<float> values(static_cast<std::size_t>(k) * n);
    bool finite = false;
    while (!finite) {  // random codes; scales are drawn again until all are finite
      for (unsigned char& byte : weights) byte = static_cast<unsigned char>(random.Next());
      finite = true;
      for (int c = 0; c < n; ++c) {
        float* out = values.data() + static_cast<std::ptrdiff_t>(c) * k;
        auto* source = weights.data() + static_cast<std::size_t>(c) * column;
        for (;;) {
          ASSERT_TRUE(DecodeRow(type, source, k, out));
          bool fine = true;
          for (int i = 0; i < k; ++i) fine &= std::fabs(out[i]) < 1e30f;
          if (fine) break;
          if (info.block_elements == 1) {  // NaN codes of a plain type: keep the rest
            for (int i = 0; i < k; ++i) {
              if (!(std::fabs(out[i]) < 1e30f))
                std::memset(source + i * info.block_bytes, 0,
                            static_cast<std::size_t>(info.block_bytes));
            }
            continue;
          }
          for (std::size_t i = 0; i < column; ++i)
            source[i] = static_cast<unsigned char>(random.Next());
        }
      }
    }
    MatrixLayout b{.type = type, .order = Order::kColMajor, .rows = k, .cols = n, .ld = k};
    test::GuardedBytes packed(kernel->PackedBytes(b));
    ASSERT_TRUE(kernel->PackB(weights.data(), b, packed.data(), {}));
    ASSERT_EQ(packed.Damage(), "");
    const int rows = desc.max_m > 0 ? desc.max_m : 20;
    for (int first = 0; first < k; first += rows) {
      const int m = std::min(rows, k - first);
      std::vector<float> a(static_cast<std::size_t>(m) * k, 0.0f),
          d(static_cast<std::size_t>(m) * n);
      for (int r = 0; r < m; ++r) a[static_cast<std::size_t>(r) * k + first + r] = 1.0f;
      GemmArgs args;
      args.a = a.data(), args.b = packed.data(), args.d = d.data();
      args.a_layout = {.rows = m, .cols = k, .ld = k};
      args.b_layout = b;
      args.b_layout.pack = desc.pack_b;
      args.d_layout = {.rows = m, .cols = n, .ld = n};
      GemmDesc problem;
      problem.m = m, problem.n = n, problem.k = k, problem.type_b = type,
      problem.pack_b = desc.pack_b;
      LaunchSpec spec;
      test::GuardedBytes partials(kernel->PartialsBytes(problem, spec, DeviceSpec{}));
      Workspace workspace;
      workspace.partials = partials.data(), workspace.partials_size = partials.size();
      ASSERT_TRUE(kernel->Launch(args, spec, workspace, {}));
      for (int r = 0; r < m; ++r) {
        for (int c = 0; c < n; ++c) {
          const float want =
              values[static_cast<std::size_t>(c) * k + first + r] + 0.0f;  // -0 sums to +0
          ASSERT_EQ(d[static_cast<std::size_t>(r) * n + c], want)
              << kernel->name() << " k = " << first + r << " column " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilewright
