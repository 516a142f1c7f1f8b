// Products of rows in groups against the dense kernels that they are made of.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "core/formats/random_blocks.h"
#include "core/test_executor.h"
#include "core/test_util.h"
#include "ops/gemm/test_registry.h"
#include "tilewright/gemm.h"

namespace tilewright {
namespace {

using test::AllKernels;
using test::Device;
using test::Pool;

/// Memory for packed weights or a workspace.
struct Aligned {
  explicit Aligned(std::size_t bytes) : memory(bytes + 64) {}
  void* data() {
    auto* const at = memory.data();
    return at + (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
  }
  std::vector<unsigned char> memory;
};

struct Sizes {
  std::int32_t n = 0, k = 0, num = 1;
};

/// `num` matrices of random weights, one after the other.
std::vector<unsigned char> RandomWeights(DataType type, const Sizes& sizes) {
  const std::int64_t count = std::int64_t{sizes.num} * sizes.n * sizes.k;
  std::vector<unsigned char> bytes(BytesOf(type, count));
  Random random(7);
  if (GetTypeInfo(type).block_quantised) {
    RandomBlocks(type, count / GetTypeInfo(type).block_elements, random, bytes.data());
  } else {
    const std::vector<float> values = test::RandomFloats(static_cast<std::size_t>(count), 8);
    EXPECT_TRUE(EncodeRow(type, values.data(), count, bytes.data()));
  }
  return bytes;
}

/// Runs `kernel` over plain column-major weights, packed as it wants them.
std::vector<float> RunKernel(Kernel& kernel, GemmArgs args, const Sizes& sizes, bool gated) {
  const MatrixLayout plain{.type = args.b_layout.type,
                           .order = Order::kColMajor,
                           .rows = sizes.k,
                           .cols = sizes.n,
                           .ld = sizes.k,
                           .num = sizes.num};
  Aligned packed(kernel.PackedBytes(plain));
  EXPECT_TRUE(kernel.PackB(args.b, plain, packed.data(), Stream{&Pool(2)}));
  args.b = packed.data();
  args.b_layout = plain;
  args.b_layout.pack = kernel.desc().pack_b;
  const std::int32_t rows = args.a_layout.rows, cols = gated ? sizes.n / 2 : sizes.n;
  std::vector<float> d(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols), NAN);
  args.d = d.data();
  args.d_layout = {.order = Order::kRowMajor,
                   .rows = rows,
                   .cols = cols,
                   .ld = cols,
                   .num = sizes.num,
                   .offsets = args.a_layout.offsets};
  args.c_layout = args.d_layout;
  GemmDesc desc;
  desc.m = rows, desc.n = sizes.n, desc.k = sizes.k, desc.num = sizes.num;
  desc.type_b = plain.type;
  desc.pack_b = kernel.desc().pack_b;
  desc.precision = Precision::kI8;
  if (gated) desc.epilogue = Epilogue::kGatedSilu;
  if (sizes.num > 1) {
    desc.group_axis = 0;
    desc.striding_a = args.a_layout.idxs != nullptr ? Striding::kIndexed : Striding::kBlocked;
    desc.striding_b = desc.striding_c = Striding::kBlocked;
  }
  const auto no = kernel.IsFeasible(desc);
  EXPECT_FALSE(no) << kernel.name() << ": " << no->ToString();
  LaunchSpec spec;
  spec.kernel = &kernel;
  DeviceSpec device;
  device.cores = 2;
  const std::size_t bytes = kernel.PartialsBytes(desc, spec, device);
  Aligned partials(bytes);
  Workspace workspace;
  workspace.partials = partials.data(), workspace.partials_size = bytes;
  const Status ran = kernel.Launch(args, spec, workspace, Stream{&Pool(2)});
  EXPECT_TRUE(ran) << ran.error().message;
  return d;
}

TEST(GroupedProducts, GiveARowTheBitsOfTheDenseKernelWithItsMatrix) {
  constexpr std::string_view kSuffix = ".grouped";
  const std::vector<std::vector<std::int32_t>> spreads = {
      {0, 3, 3, 4, 37, 40}, {0, 0, 40, 40, 40, 40}, {0, 8, 16, 24, 32, 40}};
  const std::vector<std::int32_t> sources = [] {
    std::vector<std::int32_t> rows;
    for (int i = 0; i < 40; ++i) rows.push_back(i * 7 % 23);
    return rows;
  }();
  int compared = 0;
  for (Kernel* grouped : AllKernels().kernels()) {
    const std::string name(grouped->name());
    if (!name.ends_with(kSuffix) || grouped->CheckDevice(Device())) continue;
    if (grouped->desc().pack_b == kPackPlain) continue;  // the scalar one, which packs nothing
    Kernel* dense = AllKernels().Find(name.substr(0, name.size() - kSuffix.size()));
    ASSERT_NE(dense, nullptr) << name;
    const DataType type = test::First<DataType>(grouped->desc().type_b);
    const std::vector<float> a = test::RandomFloats(23 * 512, 9);
    // With and without a last panel that is used in part, and with every spread.
    for (const auto& [n, gated, spread] :
         {std::tuple{96, false, 0}, {96, true, 0}, {75, false, 1}, {64, true, 1}, {41, false, 2}}) {
      const std::vector<std::int32_t>& offsets = spreads[static_cast<std::size_t>(spread)];
      const Sizes sizes{.n = n, .k = 512, .num = 5};
      const std::vector<unsigned char> weights = RandomWeights(type, sizes);
      GemmArgs args;
      args.a = a.data();
      args.b = weights.data();
      args.b_layout.type = type;
      args.a_layout = {.order = Order::kRowMajor,
                       .rows = 40,
                       .cols = sizes.k,
                       .ld = sizes.k,
                       .num = sizes.num,
                       .offsets = offsets.data(),
                       .idxs = sources.data()};
      const std::vector<float> got = RunKernel(*grouped, args, sizes, gated);
      const auto cols = static_cast<std::size_t>(gated ? n / 2 : n);
      for (std::size_t g = 0; g < 5; ++g) {
        // All rows with this matrix, of which those of the group are compared.
        GemmArgs one = args;
        one.b = weights.data() + g * (weights.size() / 5);
        one.a_layout.rows = 23;
        one.a_layout.num = 1, one.a_layout.offsets = one.a_layout.idxs = nullptr;
        const std::vector<float> want = RunKernel(*dense, one, {sizes.n, sizes.k, 1}, gated);
        for (auto i = offsets[g]; i < offsets[g + 1]; ++i) {
          const auto row = static_cast<std::size_t>(i);
          const auto source = static_cast<std::size_t>(sources[row]);
          ASSERT_EQ(std::memcmp(&got[row * cols], &want[source * cols], cols * sizeof(float)), 0)
              << name << (gated ? ", gated" : "") << ", row " << i;
        }
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 40);
}

void ExpectBadOffsetsRefused(Kernel& kernel) {
  const std::vector<float> a(4 * 64, 1.0f);
  const std::vector<unsigned char> weights(BytesOf(DataType::kQ4_0, 2 * 16 * 64) +
                                           kernel.PackedBytes({.type = DataType::kQ4_0,
                                                               .order = Order::kColMajor,
                                                               .rows = 64,
                                                               .cols = 16,
                                                               .ld = 64,
                                                               .num = 2}));
  for (const std::vector<std::int32_t>& offsets :
       {std::vector<std::int32_t>{0, 5, 4}, {1, 2, 4}, {0, 2, 3}, {0, 2, 1 << 30}}) {
    std::vector<float> d(4 * 16, 7.0f);
    GemmArgs args;
    args.a = a.data(), args.b = weights.data(), args.d = d.data();
    args.a_layout = {.order = Order::kRowMajor,
                     .rows = 4,
                     .cols = 64,
                     .ld = 64,
                     .num = 2,
                     .offsets = offsets.data()};
    args.b_layout = {.type = DataType::kQ4_0,
                     .order = Order::kColMajor,
                     .rows = 64,
                     .cols = 16,
                     .ld = 64,
                     .pack = kernel.desc().pack_b,
                     .num = 2};
    args.d_layout = args.c_layout = {.order = Order::kRowMajor,
                                     .rows = 4,
                                     .cols = 16,
                                     .ld = 16,
                                     .num = 2,
                                     .offsets = offsets.data()};
    Aligned partials(1 << 20);
    Workspace workspace;
    workspace.partials = partials.data(), workspace.partials_size = 1 << 20;
    const Status status = kernel.Launch(args, {}, workspace, Stream{});
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("offsets"), std::string::npos) << status.error().message;
    EXPECT_EQ(d, std::vector<float>(4 * 16, 7.0f));
  }
}

TEST(GroupedProducts, OffsetsThatDoNotAscendToTheRowsAreRefusedAndNothingIsWritten) {
  int kernels = 0;
  for (Kernel* kernel : AllKernels().kernels()) {
    const KernelDesc& desc = kernel->desc();
    if ((desc.striding_b & Bit(Striding::kFlat)) == 0 &&
        (desc.type_b & Bit(DataType::kQ4_0)) != 0 && !kernel->CheckDevice(Device())) {
      ExpectBadOffsetsRefused(*kernel);
      ++kernels;
    }
  }
  EXPECT_GE(kernels, 2);
}

}  // namespace
}  // namespace tilewright
