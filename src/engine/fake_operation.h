#pragma once

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/stage_templates.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::test {

// Two operations that the engine has never heard of.
struct BlurDesc {
  std::int32_t rows = 0;
  std::int32_t width = 0;
  Guarantee guarantee = Guarantee::kFastest;
  auto operator<=>(const BlurDesc&) const = default;
};
template <class D, class F>
requires std::is_same_v<std::remove_const_t<D>, BlurDesc>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("width", desc.width), f("guarantee", desc.guarantee);
}
inline std::string KeyOf(const BlurDesc& desc) { return FieldsKey(desc); }

struct HashDesc {
  std::int32_t rows = 0;
  auto operator<=>(const HashDesc&) const = default;
};
template <class D, class F>
requires std::is_same_v<std::remove_const_t<D>, HashDesc>
void ForEachField(D& desc, F&& f) { f("rows", desc.rows); }
inline std::string KeyOf(const HashDesc& desc) { return FieldsKey(desc); }

template <class D>
struct FakeOp {
  using Desc = D;
  struct Args {
    Desc of;
    std::string* log = nullptr;
  };
  using KernelType = OpKernel<FakeOp>;
  using Spec = BasicLaunchSpec<KernelType>;
  static constexpr std::string_view kName = "fake";
};
using BlurOp = FakeOp<BlurDesc>;
using HashOp = FakeOp<HashDesc>;
inline Result<BlurDesc> DescOf(const BlurOp::Args& args, const CallTerms&) { return args.of; }

/// What a fake kernel may be configured by.
struct Tiles {
  std::int64_t rows = 4, threads = 1;
  static constexpr auto kMembers =
      std::tuple{ConfigMember<Tiles>{"rows", &Tiles::rows, 1, 64},
                 ConfigMember<Tiles>{"threads", &Tiles::threads, 1, 8}};
};

template <class Op>
class Fake final : public OpKernel<Op> {
 public:
  using typename OpKernel<Op>::Desc;
  using typename OpKernel<Op>::Spec;
  using typename OpKernel<Op>::Args;
  Fake(KernelInfo info, double us, int limit, bool configurable = false)
      : OpKernel<Op>(std::move(info)), us_(us), limit_(limit), configurable_(configurable) {}
  std::optional<Rejection> IsFeasible(const Desc& desc) const override {
    if constexpr (requires { desc.width; }) {
      if (desc.width > limit_) {
        return Rejection{Reason::kShape, "width = " + std::to_string(desc.width),
                         "width <= " + std::to_string(limit_)};
      }
    }
    return std::nullopt;
  }
  std::vector<Spec> Specs(const Desc& desc, const DeviceSpec& device,
                          const LaunchLimits& limits) const override {
    if (!configurable_) return OpKernel<Op>::Specs(desc, device, limits);
    std::vector<Spec> specs;
    for (const std::int64_t threads : {1, 2, 8}) {
      Spec spec;
      spec.config = TypedConfig<Tiles>::Pack({.rows = 16, .threads = threads});
      specs.push_back(spec);
    }
    return specs;
  }
  std::span<const ConfigField> ConfigFields() const override {
    if (!configurable_) return {};
    return TypedConfig<Tiles>::kFields;
  }
  WorkspaceSize WorkspaceFor(const Desc&, const Spec& spec, const DeviceSpec&) const override {
    const auto threads = static_cast<std::size_t>(spec.config.words[1]);
    return {.partials = 1024 * threads};
  }
  double EstimateUs(const Desc&, const Spec& spec, const DeviceSpec&) const override {
    return configurable_ ? us_ / static_cast<double>(spec.config.words[1]) : us_;
  }
  Status Launch(const Args& args, const Spec& spec, Workspace&, Stream) override {
    if (args.log != nullptr) *args.log += SpecText(spec);
    return {};
  }

 private:
  double us_;
  int limit_;
  bool configurable_;
};

inline KernelInfo Info(std::string name) {
  KernelInfo info;
  info.name = std::move(name);
  return info;
}

using Blur = Fake<BlurOp>;

inline Result<Checked<BlurOp>> Validate(const BlurDesc& desc) {
  if (desc.rows < 1) return Fail(ErrorCode::kInvalidArgument, "rows: must be at least 1");
  return Stages<BlurOp>::MarkValidated(desc);
}

/// One kernel with launch configurations, one without.
inline OpRegistry<BlurOp> Configurable() {
  OpRegistry<BlurOp> registry;
  static_cast<void>(registry.Add(std::make_unique<Blur>(Info("blur.tiled"), 8.0, 100, true)));
  static_cast<void>(registry.Add(std::make_unique<Blur>(Info("blur.plain"), 3.0, 100)));
  return registry;
}

}  // namespace tilewright::test
