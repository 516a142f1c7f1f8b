// Supports, Prepare and the run of a dispatch give one answer for every operation with every type:
// either the node is supported, prepared and computed, right and inside its memory, or all three
// refuse it and nothing is written.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "one_node.h"

namespace tilewright {
namespace {

using test::FreeTypes;
using test::NodeTypes;
using test::OneNode;

constexpr TensorOp kOps[] = {
    TensorOp::kMulMat,        TensorOp::kRmsNorm,
    TensorOp::kAdd,           TensorOp::kRope,
    TensorOp::kAttention,     TensorOp::kCopy,
    TensorOp::kMul,           TensorOp::kSilu,
    TensorOp::kKvScatter,     TensorOp::kEmbedding,
    TensorOp::kMulMatAdd,     TensorOp::kMulMatSwiGlu,
    TensorOp::kGelu,          TensorOp::kGeGlu,
    TensorOp::kSoftcap,       TensorOp::kSwiGlu,
    TensorOp::kRopeScatter,   TensorOp::kAddRmsNorm,
    TensorOp::kTopK,          TensorOp::kRopeQkvScatter,
    TensorOp::kNormMulMat,    TensorOp::kNormMulMatSwiGlu,
    TensorOp::kRoute,         TensorOp::kCombine,
    TensorOp::kMulMatExperts, TensorOp::kMulMatExpertsSwiGlu,
    TensorOp::kClampedSwiGlu, TensorOp::kRopeAttention,
};

/// All types there are but kNone: the enumeration is dense, and what lies behind its end has no
/// name.
std::vector<DataType> AllTypes() {
  std::vector<DataType> types;
  for (int i = 1; i < 64; ++i) {
    const auto type = static_cast<DataType>(i);
    if (const auto parsed = ParseDataType(DataTypeName(type)); parsed == type)
      types.push_back(type);
  }
  return types;
}

/// Relative distance that the rounding of results, and of activations where they are rounded, may
/// cause.
double Tolerance(const OneNode& node, Precision activations) {
  const TensorOp op = node.node().op;
  const bool product = op == TensorOp::kMulMat || op == TensorOp::kMulMatAdd ||
                       op == TensorOp::kMulMatSwiGlu || op == TensorOp::kNormMulMat ||
                       op == TensorOp::kNormMulMatSwiGlu || op == TensorOp::kMulMatExperts ||
                       op == TensorOp::kMulMatExpertsSwiGlu;
  if (product && activations == Precision::kI8) return 2e-2;
  switch (node.node().out.dtype) {
    case DataType::kF16:
      return 0x1p-10;
    case DataType::kQ8_0:
    case DataType::kI8X32:
      return 1e-2;
    case DataType::kBF16:
      return 0x1p-7;
    default:
      return product && activations == Precision::kBF16 ? 1e-2 : 4e-6;
  }
}

struct Outcome {
  int supported = 0, refused = 0;
};

using MakeDispatch = std::function<std::unique_ptr<KernelDispatch>()>;

void CheckNode(OneNode& one, const MakeDispatch& make, Precision activations, Outcome& outcome) {
  const auto dispatch = make();
  const std::optional<Rejection> no = dispatch->Supports(one.graph(), one.node());
  const Status prepared = dispatch->Prepare(one.graph());
  EXPECT_EQ(no.has_value(), !prepared.has_value())
      << one.name() << ": " << (no ? no->ToString() : "supported")
      << "; prepare: " << (prepared ? "ok" : prepared.error().message);
  if (!prepared) {
    EXPECT_EQ(prepared.error().code, ErrorCode::kUnsupported) << one.name();
  }
  const auto run = ExecuteGraph(one.graph(), *dispatch);
  EXPECT_EQ(prepared.has_value(), run.has_value())
      << one.name() << ": prepare: " << (prepared ? "ok" : prepared.error().message)
      << "; run: " << (run ? "ok" : run.error().message);
  EXPECT_EQ(one.Damage(), "") << one.name();
  if (!run) {
    ++outcome.refused;
    EXPECT_EQ(run.error().code, ErrorCode::kUnsupported) << one.name();
    EXPECT_TRUE(one.Untouched()) << one.name() << ": refused, yet the output was written";
  } else {
    ++outcome.supported;
    const std::vector<double> got = one.Result(), want = one.Expected();
    EXPECT_LE(test::RelativeL2(std::span<const double>(got), std::span<const double>(want)),
              Tolerance(one, activations))
        << one.name();
  }
  // A call that was not prepared prepares itself, to the same end.
  const std::vector<std::byte> first = one.ResultBytes();
  one.Reset();
  const auto unprepared = ExecuteGraph(one.graph(), *make());
  EXPECT_EQ(unprepared.has_value(), run.has_value()) << one.name();
  EXPECT_EQ(one.ResultBytes(), first) << one.name();
}

/// Whether a node with these types is tried: every type in every place, but of nodes with several
/// block formats only those of three formats, which stand for the others. All would take minutes.
bool Tried(const NodeTypes& types) {
  constexpr DataType kTogether[] = {DataType::kQ4_0, DataType::kQ8_0, DataType::kQ4_K};
  int blocks = 0, others = 0;
  for (const DataType type : {types.first, types.second, types.out}) {
    const bool block = GetTypeInfo(type).block_quantised && type != DataType::kI8X32;
    blocks += block ? 1 : 0;
    others += block && std::ranges::find(kTogether, type) == std::end(kTogether) ? 1 : 0;
  }
  return blocks < 2 || others == 0;
}

Outcome CheckAll(const MakeDispatch& make, Precision activations) {
  Outcome outcome;
  const std::vector<DataType> types = AllTypes(), f32 = {DataType::kF32};
  std::uint64_t seed = 0;
  for (const TensorOp op : kOps) {
    const auto free = FreeTypes(op);
    for (const DataType first : types) {
      for (const DataType second : free[1] ? types : f32) {
        for (const DataType out : free[2] ? types : f32) {
          const NodeTypes tried{first, second, out};
          if (!Tried(tried)) continue;
          OneNode one(op, tried, seed += 16);
          // What the graph's own rules exclude never reaches a dispatch.
          if (VerifyGraph(one.graph())) CheckNode(one, make, activations, outcome);
        }
      }
    }
  }
  return outcome;
}

TEST(DispatchAgreement, every_type_is_among_those_tried) {
  const std::vector<DataType> types = AllTypes();
  for (const DataType type : {DataType::kF32, DataType::kU4, DataType::kQ4_0, DataType::kQ6_K,
                              DataType::kQ4_K, DataType::kF8E4M3, DataType::kI64}) {
    EXPECT_NE(std::find(types.begin(), types.end(), type), types.end()) << DataTypeName(type);
  }
}

TEST(DispatchAgreement, the_reference_supports_what_it_prepares_and_computes) {
  const Outcome outcome = CheckAll([] { return MakeReferenceDispatch(); }, Precision::kF32);
  EXPECT_GE(outcome.supported, 400);
  EXPECT_GE(outcome.refused, 200);
  std::printf("%d supported, %d refused\n", outcome.supported, outcome.refused);
}

class CpuAgreement : public ::testing::TestWithParam<Precision> {};

TEST_P(CpuAgreement, supports_what_it_prepares_and_computes) {
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
  const std::unique_ptr<Device> device = MakeCpuDevice(DetectCpuCappedAt(Isa::kAmx));
  DispatchOptions options;
  options.activations = GetParam();
  const Outcome outcome = CheckAll(
      [&] { return std::make_unique<DeviceDispatch>(*kernels, *device, options); }, GetParam());
  EXPECT_GE(outcome.supported, 60);
  EXPECT_GE(outcome.refused, 200);
  std::printf("%d supported, %d refused\n", outcome.supported, outcome.refused);
}

INSTANTIATE_TEST_SUITE_P(Activations, CpuAgreement,
                         ::testing::Values(Precision::kF32, Precision::kBF16, Precision::kI8),
                         [](const auto& info) {
                           return info.param == Precision::kF32    ? "f32"
                                  : info.param == Precision::kBF16 ? "bf16"
                                                                   : "int8";
                         });

}  // namespace
}  // namespace tilewright
