// The guarantee "batch invariant" across kernels: records may choose one kernel for one token and
// another for many, so all that keep the guarantee and read one layout of the weights must give one
// row the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/formats.h"
#include "core/test_util.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

constexpr std::int32_t kN = 48, kK = 512;

/// Row 0 of the product of `rows` equal rows, as `spec` computes it.
std::vector<float> FirstRow(const GemmDesc& desc, const LaunchSpec& spec,
                            const test::RandomMatrix& weights, const std::vector<float>& row) {
  Kernel& kernel = *spec.kernel;
  MatrixLayout b{.type = desc.type_b, .order = Order::kColMajor, .rows = kK, .cols = kN, .ld = kK};
  const void* data = weights.bytes.data();
  Buffer packed;
  if (kernel.desc().pack_b != kPackPlain) {
    packed = Buffer::Make(kernel.PackedBytes(b));
    EXPECT_TRUE(kernel.PackB(data, b, packed.data(), {})) << kernel.name();
    data = packed.data();
    b.pack = kernel.desc().pack_b;
  }
  std::vector<float> a, d(static_cast<std::size_t>(desc.m) * kN);
  for (int i = 0; i < desc.m; ++i) a.insert(a.end(), row.begin(), row.end());
  GemmArgs args;
  args.a = a.data(), args.b = data, args.d = d.data();
  args.a_layout = {
      .type = DataType::kF32, .order = Order::kRowMajor, .rows = desc.m, .cols = kK, .ld = kK};
  args.b_layout = b;
  args.d_layout = {
      .type = DataType::kF32, .order = Order::kRowMajor, .rows = desc.m, .cols = kN, .ld = kN};
  args.c_layout = args.d_layout;
  GemmDesc bound = desc;
  bound.pack_b = kernel.desc().pack_b;
  Buffer scratch = Buffer::Make(kernel.PartialsBytes(bound, spec, DeviceSpec{}) + 64);
  Workspace workspace;
  workspace.partials = scratch.data(), workspace.partials_size = scratch.size();
  const Status status = kernel.Launch(args, spec, workspace, {});
  EXPECT_TRUE(status) << kernel.name() << ": " << (status ? "" : status.error().message);
  d.resize(kN);
  return d;
}

TEST(BatchInvariance,
     every_kernel_and_spec_that_promises_it_agrees_with_all_others_of_its_layout_and_rounding) {
  const DeviceSpec device = DetectCpuCappedAt(Isa::kAmx);
  Registry registry;
  AddAllGemm(registry);
  const std::vector<float> row = test::RandomFloats(kK, 3);
  int compared = 0;
  std::vector<DataType> types = {DataType::kF32, DataType::kF16, DataType::kBF16};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  for (const DataType type : types) {
    const test::RandomMatrix weights(type, kN, kK, 5, 0.05);
    for (const Precision precision :
         {Precision::kAuto, Precision::kF32, Precision::kBF16, Precision::kI8}) {
      struct First {
        std::string who;
        std::vector<float> values;
      };
      std::map<Pack, First> first;
      for (const int m : {1, 2, 5, 64}) {
        GemmDesc desc;
        desc.m = m, desc.n = kN, desc.k = kK;
        desc.type_b = type;
        desc.pack_b = kPackAny;
        desc.precision = precision;
        desc.guarantee = Guarantee::kBatchInvariant;
        const GemmCandidates candidates = Feasible(Validate(desc).value(), registry, device);
        for (const GemmCandidate& candidate : candidates.all()) {
          // Runs only where no other kernel can, at every batch size alike.
          if (candidate.kernel->info().reference) continue;
          const KernelDesc& kernel = candidate.kernel->desc();
          for (const LaunchSpec& spec : candidate.specs) {
            const std::vector<float> values = FirstRow(desc, spec, weights, row);
            const std::string who = std::string(candidate.kernel->name()) + " " + SpecText(spec) +
                                    " m=" + std::to_string(m);
            const auto [known, fresh] = first.try_emplace(kernel.pack_b, First{who, values});
            ++compared;
            EXPECT_TRUE(fresh || test::BitwiseEqual(values.data(), known->second.values.data(),
                                                    kN * sizeof(float)))
                << DataTypeName(type) << " weights, precision " << static_cast<int>(precision)
                << ":\n  " << who << "\n  " << known->second.who << "\n  differ by "
                << test::MaxAbsError<float, float>(values, known->second.values);
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace tilewright
