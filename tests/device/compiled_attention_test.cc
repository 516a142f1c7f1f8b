// Attention on the fake GPU, through the stages: chosen, compiled to images without code, loaded and
// launched. What a launch of a kernel computes is its own source, run on the CPU from the parameter
// block that the launch has.
#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After them: the kernels use their built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "artifact/store/fake_compiler.h"
#include "cuda_device_fixture.h"
#include "ops/attention/cuda/attention_mma_kernel.cuh"
#include "ops/attention/cuda/attention_split_kernel.cuh"
#include "ops/attention/cuda/families.h"
#include "ops/attention/cuda/kernels.h"
#include "ops/attention/cuda/test_batch.h"

namespace tilewright::cuda {
namespace {

using attention::Batch;
using attention::BatchCase;
using attention::Op;

/// Images that are whole by their header.
class WholeImages final : public KernelCompiler {
 public:
  const CompilerIdentity& identity() const override { return fake_.identity(); }
  tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                      const CancelFn& cancelled) const override {
    auto output = fake_.Compile(job, cancelled);
    if (output) output->cubin = "\177ELF" + std::string(60, '\0') + output->cubin;
    return output;
  }

 private:
  test::FakeCompiler fake_;
};

/// The kernels of bf16 with heads of 64 elements and splits of 64 positions.
struct SplitSpec {
  static constexpr tw::Type kTypeQ = tw::Type::kBF16, kTypeKv = tw::Type::kBF16;
  static constexpr int kHeadDim = 64, kMaxHeads = 8, kSplit = 64, kPositions = 64, kWarps = 4;
};
struct MmaSpec {
  static constexpr tw::Type kTypeQ = tw::Type::kBF16, kTypeKv = tw::Type::kBF16;
  static constexpr int kHeadDim = 64, kPositions = 64, kWarps = 4;
};

/// Runs a launch on the CPU; returns a CUresult.
int Emulate(const FakeCuda::Launch& launched) {
  CudaLaunch launch;
  launch.grid = launched.grid;
  launch.block = launched.block;
  launch.dynamic_smem_bytes = launched.dynamic_smem_bytes;
  AttentionParams params;
  std::memcpy(&params, launched.params.data(), sizeof params);
  launch.params = KernelParams(params);
  const bool split = launched.symbol.find("attention_split") != std::string::npos;
  const bool ran =
      tw::emulation::RunLaunch<AttentionParams>(launch, 128, [split](const AttentionParams& p) {
        if (split) {
          tw::AttentionSplit<SplitSpec>(p, tw::emulation::smem).Run();
        } else {
          tw::AttentionMma<MmaSpec>(p, tw::emulation::smem).Run();
        }
      });
  return ran && !tw::emulation::fault ? 0 : 1;  // CUDA_ERROR_INVALID_VALUE
}

class CompiledAttention : public CudaDeviceTest {
 protected:
  CompiledAttention() {
    KernelFamilies families;
    EXPECT_TRUE(AddAttentionFamilies(families));
    store_ = test::OpenFake(test::FakeOptions(folder_.path(), std::make_shared<WholeImages>()),
                            families);
    EXPECT_TRUE(attention::AddCudaKernels(kernels_, *store_, {90, 'a'}));
    device_ = Make();
    fake_.SetKernels(&Emulate);
  }
  DeviceMemory Upload(const void* from, std::size_t bytes) {
    DeviceMemory memory = device_->Allocate(std::max<std::size_t>(bytes, 16)).value();
    if (bytes == 0) return memory;
    EXPECT_TRUE(device_->Upload(memory.data(), from, bytes, device_->default_stream()));
    EXPECT_TRUE(device_->Synchronize(device_->default_stream()));
    return memory;
  }
  /// Runs the feasible kernel whose name has both words, twice in one workspace.
  void Check(const BatchCase& c, const char* family, const char* tile) {
    Batch batch(c, 3);
    const DeviceMemory q = Upload(batch.q().data(), batch.q().size()),
                       k = Upload(batch.k().data(), batch.k().size()),
                       v = Upload(batch.v().data(), batch.v().size());
    const DeviceMemory positions = Upload(batch.positions().data(), batch.positions().size() * 4),
                       slots = Upload(batch.slots().data(), batch.slots().size() * 4),
                       pages = Upload(batch.pages().data(), batch.pages().size() * 4);
    const DeviceMemory out = device_->Allocate(batch.OutBytes()).value();
    const attention::Args args = batch.ArgsAt(
        {q.data(), k.data(), v.data(), positions.data(), slots.data(), pages.data(), out.data()});
    const attention::Desc desc = attention::DescOf(args, {}).value();
    const auto all = Feasible(attention::Validate(desc).value(), kernels_, device_->spec());
    Pins pins;
    for (const auto& candidate : all.all()) {
      const std::string name(candidate.kernel->name());
      if (candidate.feasible() && name.starts_with(family) && name.find(tile) != name.npos) {
        pins.by_problem[{"attention", attention::KeyOf(desc)}] = {name,
                                                                  SpecText(candidate.specs[0])};
      }
    }
    ASSERT_EQ(pins.by_problem.size(), 1u) << family;
    const auto plan = Bind(Choose(all, nullptr, &pins).value(), *device_).value();
    OwnedWorkspace workspace = OwnedWorkspace::Make(plan.workspace(), *device_).value();
    const std::vector<double> want = batch.Want();
    for (int run = 0; run < 2; ++run) {
      const Stream stream = device_->default_stream();
      ASSERT_TRUE(device_->Fill(out.data(), 0xff, out.size(), stream));
      const Status launched = tilewright::Run(plan, args, workspace.get(), stream);
      ASSERT_TRUE(launched) << launched.error().message;
      std::vector<std::byte> got(out.size());
      ASSERT_TRUE(device_->Download(got.data(), out.data(), got.size(), stream));
      const Status done = device_->Synchronize(stream);
      ASSERT_TRUE(done) << done.error().message;
      batch.ExpectNear(batch.Result(got.data()), want);
    }
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<ArtifactStore> store_;
  attention::Registry kernels_;
  std::unique_ptr<Device> device_;
};

BatchCase Interleaved() {
  BatchCase c{.q = DataType::kBF16, .kv = DataType::kBF16, .heads = 4, .kv_heads = 2};
  c.context = 400, c.sequences = 2, c.page_size = 64;
  c.positions = {5, 399, -1, 130}, c.slots = {0, 1, 0, 0};
  return c;
}

TEST_F(CompiledAttention, DividesSequencesInTheWorkspaceOfItsPlan) {
  Check(Interleaved(), "attention_split", ".8x64x64.");
}

TEST_F(CompiledAttention, RunsOnTensorCoresWithoutOne) {
  BatchCase c = Interleaved();
  attention::AddRows(c, 0, 200, 20);
  Check(c, "attention_mma", ".64x64x0.");
}

}  // namespace
}  // namespace tilewright::cuda
