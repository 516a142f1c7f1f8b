// The comparison of two devices node by node, tried without a GPU: a device that the host cannot touch,
// with the kernels of another instruction set or with 16-bit activations, against the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/formats/formats.h"
#include "device/fake/fake_device.h"
#include "graph/fake/async_kernels.h"
#include "models.h"
#include "on_host.h"

namespace tilewright {
namespace {

/// A model whose weights lie plain on a fake device with the kernels of `isa`.
struct OnFake {
  OnFake(const std::string& path, Isa isa)
      : device(FakeDevice::Create(DetectCpuCappedAt(isa), {.seed = 1}).value()),
        kernels(MakeAsyncKernels(*cpu, *device)),
        dispatch(*kernels, *device, Precise()) {
    ModelOptions options;
    options.device = device.get();
    auto loaded = Model::Load(path, options);
    if (loaded) {
      model = std::move(*loaded);
    } else {
      ADD_FAILURE() << loaded.error().message;
    }
  }
  static DispatchOptions Precise() {
    DispatchOptions options;
    options.activations = Precision::kF32;
    return options;
  }

  std::unique_ptr<Kernels> cpu = MakeCpuKernels();
  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<Kernels> kernels;
  DeviceDispatch dispatch;
  std::unique_ptr<Model> model;
};

SessionOptions Options(DataType activations, DataType kv) {
  return {.kv = kv, .activations = activations, .context = 128, .page_size = 64};
}

TEST(NodeAgreement, kernels_of_one_instruction_set_agree_with_the_best_for_every_type_of_weights) {
  const test::TempDir folder;
  std::vector<DataType> types = {DataType::kBF16, DataType::kF16, DataType::kF32};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  for (const DataType weights : types) {
    const std::string name(DataTypeName(weights));
    SCOPED_TRACE(name);
    OnFake scalar(test::WriteTiny(folder, name, test::WideShape(), weights), Isa::kScalar);
    ASSERT_NE(scalar.model, nullptr);
    EXPECT_GT(test::ExpectNodesOfCpu(*scalar.model, scalar.dispatch,
                                     Options(DataType::kF32, DataType::kF16), 1e-5),
              50);
  }
}

TEST(NodeAgreement, activations_of_16_bits_agree_up_to_their_rounding) {
  const test::TempDir folder;
  const std::string path = test::WriteTiny(folder, "narrow", test::WideShape(), DataType::kQ8_0);
  for (const auto& [type, bound] :
       {std::pair{DataType::kBF16, 0x1p-8}, {DataType::kF16, 0x1p-11}}) {
    SCOPED_TRACE(DataTypeName(type));
    OnFake narrow(path, Isa::kAvx2);
    ASSERT_NE(narrow.model, nullptr);
    EXPECT_GT(test::ExpectNodesOfCpu(*narrow.model, narrow.dispatch, Options(type, type), bound),
              50);
  }
}

/// Adds a hundredth of its largest element to the result of one node.
class Wrong final : public ForwardingDispatch {
 public:
  Wrong(KernelDispatch& inner, std::string name)
      : ForwardingDispatch(inner), name_(std::move(name)) {}
  std::string_view name() const override { return "wrong"; }

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView>, const TensorView& out,
                Call call) override {
    if (Status done = call(inner()); !done || node.name != name_) return done;
    const Stream stream = device()->default_stream();
    std::vector<float> values(static_cast<std::size_t>(out.elements()));
    const std::size_t bytes = values.size() * sizeof(float);
    if (Status got = device()->Download(values.data(), out.data, bytes, stream); !got) return got;
    if (Status done = device()->Synchronize(stream); !done) return done;
    values[0] += *std::max_element(values.begin(), values.end()) / 100;
    if (Status put = device()->Upload(out.data, values.data(), bytes, stream); !put) return put;
    return device()->Synchronize(stream);
  }

 private:
  std::string name_;
};

TEST(NodeAgreement, the_first_node_that_differs_is_named) {
  const test::TempDir folder;
  OnFake fake(test::WriteTiny(folder, "wrong", test::WideShape(), DataType::kQ8_0), Isa::kScalar);
  ASSERT_NE(fake.model, nullptr);
  Wrong wrong(fake.dispatch, "blk.1.attention");
  DeviceDispatch cpu(*fake.cpu, HostDevice(), OnFake::Precise());
  test::OnHostDispatch host(cpu, *fake.device, true);
  const test::NodeDifferences found =
      test::CompareNodes(*fake.model, wrong, host, Options(DataType::kF32, DataType::kF16), 1e-5);
  EXPECT_THAT(found.first, testing::StartsWith("blk.1.attention (attention): relative L2 "));
}

}  // namespace
}  // namespace tilewright
