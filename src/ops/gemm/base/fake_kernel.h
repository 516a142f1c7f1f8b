#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>

#include "tilewright/gemm.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::test {

/// A GEMM kernel whose answers a test decides; Launch computes f32 operands of any order the slow
/// way.
class FakeKernel : public Kernel {
 public:
  struct Setup {
    std::string name = "gemm.fake";
    std::string fingerprint = "f1";
    KernelDesc desc;
    int max_swizzle = 0;
    int max_splits = 1;
    std::size_t partials_bytes = 0;  ///< for every split beyond the first
    bool reference = false;
    bool batch_invariant = false;
    Provider provider = Provider::kOwn;
    std::uint32_t features = 0;
    std::span<const ConfigField> config_fields = {};
    std::function<double(const GemmDesc&, const LaunchSpec&)> estimate =
        [](const GemmDesc&, const LaunchSpec&) { return 1.0; };
    std::function<Status(const GemmArgs&, const LaunchSpec&)> launch;  ///< replaces the computation
  };

  explicit FakeKernel(Setup setup) : Kernel(InfoOf(setup), setup.desc), setup_(std::move(setup)) {}

  std::span<const ConfigField> ConfigFields() const override { return setup_.config_fields; }
  int GetMaxSwizzle(const GemmShape&) const override { return setup_.max_swizzle; }
  int GetMaxSplits(const GemmShape&, int, std::size_t, std::size_t partials_size) const override {
    int splits = setup_.max_splits;
    while (splits > 1 &&
           setup_.partials_bytes * static_cast<std::size_t>(splits - 1) > partials_size)
      --splits;
    return splits;
  }
  std::size_t PartialsBytes(const GemmDesc&, const LaunchSpec& spec,
                            const DeviceSpec&) const override {
    return setup_.partials_bytes * static_cast<std::size_t>(spec.splits - 1);
  }
  double EstimateUs(const GemmDesc& problem, const LaunchSpec& spec,
                    const DeviceSpec&) const override {
    return setup_.estimate(problem, spec);
  }
  Status Launch(const GemmArgs& args, const LaunchSpec& spec, Workspace&, Stream) override {
    ++launches;
    if (setup_.launch) return setup_.launch(args, spec);
    for (std::int32_t i = 0; i < args.d_layout.rows; ++i) {
      for (std::int32_t j = 0; j < args.d_layout.cols; ++j) {
        float sum = 0;
        for (std::int32_t k = 0; k < args.a_layout.cols; ++k) {
          sum += At(args.a, args.a_layout, i, k) * At(args.b, args.b_layout, k, j);
        }
        float value = args.alpha * sum;
        if (args.beta != 0) value += args.beta * At(args.c, args.c_layout, i, j);
        static_cast<float*>(args.d)[Index(args.d_layout, i, j)] = value;
      }
    }
    return {};
  }

  mutable int launches = 0;

 private:
  static KernelInfo InfoOf(const Setup& setup) {
    KernelInfo info;
    info.name = setup.name;
    info.fingerprint = setup.fingerprint;
    info.provider = setup.provider;
    info.features = setup.features;
    info.batch_invariant = setup.batch_invariant;
    info.reference = setup.reference;
    return info;
  }
  static std::int64_t Index(const MatrixLayout& layout, std::int32_t row, std::int32_t col) {
    return layout.order == Order::kRowMajor ? row * layout.ld + col : col * layout.ld + row;
  }
  static float At(const void* data, const MatrixLayout& layout, std::int32_t row,
                  std::int32_t col) {
    return static_cast<const float*>(data)[Index(layout, row, col)];
  }

  Setup setup_;
};

inline FakeKernel::Setup F32Setup(std::string name) {
  FakeKernel::Setup setup;
  setup.name = std::move(name);
  setup.desc.type_a = setup.desc.type_b = setup.desc.type_c = Bit(DataType::kF32);
  return setup;
}

/// Adds a fake to the registry and returns it.
inline FakeKernel* AddFake(Registry& registry, FakeKernel::Setup setup) {
  auto kernel = std::make_unique<FakeKernel>(std::move(setup));
  FakeKernel* raw = kernel.get();
  return registry.Add(std::move(kernel)) ? raw : nullptr;
}

inline GemmDesc F32Problem(std::int32_t m, std::int32_t n = 64, std::int32_t k = 32) {
  GemmDesc desc;
  desc.m = m, desc.n = n, desc.k = k;
  return desc;
}

}  // namespace tilewright::test
