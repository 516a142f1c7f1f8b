#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/kernel.h"
#include "tilewright/result.h"

namespace tilewright {

// What an operation is made of. An operation is a struct that names its parts,
//
//   struct Op {
//     using Desc = ...;        // the problem: a plain aggregate, the key of every cache and record
//     using Args = ...;        // pointers and views of one call
//     using KernelType = ...;  // OpKernel<Op>, or a class derived from it
//     using Spec = BasicLaunchSpec<KernelType>;
//     static constexpr std::string_view kName = "norm";  // in records, pins and on the command
//     line
//   };
//
// and beside it, found by argument-dependent lookup, ForEachField(Desc&, f). GEMM, attention, norm,
// RoPE, elementwise, copy, KV scatter and embedding are such operations; tilewright/stages.h holds
// what is done with one.

/// Scratch memory of a launch, in the device's memory. Buffers may be larger than needed; two
/// threads may run one plan with two workspaces.
struct Workspace {
  void* barriers = nullptr;  ///< zero before the first launch; every launch leaves them zero
  std::size_t barriers_size = 0;
  void* partials = nullptr;  ///< f32 split-K partials, quantised activations: 64-byte aligned
  std::size_t partials_size = 0;
  void* tensormaps = nullptr;  ///< 64-byte aligned, written by the launch itself
  std::size_t tensormaps_size = 0;
  int* flags = nullptr;
};

/// Bytes of each part of a Workspace that a launch needs. The caller zeroes `barriers` once, when
/// it allocates them, and nothing else.
struct WorkspaceSize {
  std::size_t barriers = 0;
  std::size_t partials = 0;
  std::size_t tensormaps = 0;
  std::size_t flags = 0;

  bool operator==(const WorkspaceSize&) const = default;
};

/// How much of each part the caller is ready to give, and how many k splits are worth trying.
struct LaunchLimits {
  std::size_t barriers_bytes = std::size_t{1} << 20;
  std::size_t partials_bytes = std::size_t{32} << 20;
  int max_splits = 16;  ///< split counts tried: 1, 2, 3, 4, 6, 8, 12, 16 up to this
};

/// A kernel with its launch parameters: what the tuner measures and the records store.
template <class KernelT>
struct BasicLaunchSpec {
  KernelT* kernel = nullptr;
  std::int32_t swizzle = 0;  ///< log2 of the traversal tile
  std::int32_t splits = 1;
  float measured_us = 0;  ///< median; 0 = never measured
  float predicted_us = 0;
  LaunchConfig config;  ///< whatever else the kernel lets one choose; all zero = nothing

  bool operator==(const BasicLaunchSpec& o) const {
    return kernel == o.kernel && swizzle == o.swizzle && splits == o.splits && config == o.config;
  }
};

/// "swizzle=1 splits=2 threads=8": swizzle, splits, then the kernel's own configuration.
std::string LaunchText(const KernelBase& kernel, std::int32_t swizzle, std::int32_t splits,
                       const LaunchConfig& config);
template <class KernelT>
std::string SpecText(const BasicLaunchSpec<KernelT>& spec) {
  if (spec.kernel != nullptr)
    return LaunchText(*spec.kernel, spec.swizzle, spec.splits, spec.config);
  return "swizzle=" + std::to_string(spec.swizzle) + " splits=" + std::to_string(spec.splits);
}

/// The inverse of LaunchText; nullopt for anything else: other words, swizzle outside 0..30, splits
/// outside 1..4096, a configuration that `kernel` does not parse.
struct LaunchWords {
  std::int32_t swizzle = 0, splits = 1;
  LaunchConfig config;
};
std::optional<LaunchWords> ParseLaunch(std::string_view text, const KernelBase& kernel);
template <class KernelT>
std::optional<BasicLaunchSpec<KernelT>> ParseSpec(std::string_view text, KernelT* kernel) {
  const std::optional<LaunchWords> words = ParseLaunch(text, *kernel);
  if (!words) return std::nullopt;
  BasicLaunchSpec<KernelT> spec;
  spec.kernel = kernel;
  spec.swizzle = words->swizzle, spec.splits = words->splits, spec.config = words->config;
  return spec;
}

/// A launch with everything resolved that can be before the operands are known: a loaded function
/// and its grid, a library's primitive. Immutable; any number of threads, each with a workspace.
template <class Op>
class BoundLaunch {
 public:
  virtual ~BoundLaunch() = default;
  virtual Status Launch(const typename Op::Args& args, Workspace& workspace,
                        Stream stream) const = 0;
};

/// What the caller of an operation says beside the arguments.
struct CallTerms {
  Precision activations = Precision::kAuto;
  Guarantee guarantee = Guarantee::kFastest;
};

/// One implementation of an operation on one kind of device. Immutable after construction; all
/// members may be called from many threads.
template <class Op>
class OpKernel : public KernelBase {
 public:
  using Desc = typename Op::Desc;
  using Args = typename Op::Args;
  using Spec = typename Op::Spec;
  using KernelBase::KernelBase;

  /// nullopt when Launch will take this problem, exactly; else the first reason for no.
  virtual std::optional<Rejection> IsFeasible(const Desc& desc) const = 0;

  /// Launch parameters worth trying for a feasible problem, by rising splits, then swizzle; the
  /// `kernel` of each may be left null. Those that need more workspace than `limits` are left out
  /// by the caller. The default offers one.
  virtual std::vector<Spec> Specs(const Desc& desc, const DeviceSpec& device,
                                  const LaunchLimits& limits) const {
    static_cast<void>(desc), static_cast<void>(device), static_cast<void>(limits);
    return {Spec{}};
  }

  /// Predicted time in microseconds on `device`; only the order matters when nothing was measured.
  virtual double EstimateUs(const Desc& desc, const Spec& spec, const DeviceSpec& device) const = 0;

  /// What Launch needs for `desc` with `spec` on `device`: on the CPU, with an executor of at most
  /// DeviceSpec::cores workers.
  virtual WorkspaceSize WorkspaceFor(const Desc& desc, const Spec& spec,
                                     const DeviceSpec& device) const {
    static_cast<void>(desc), static_cast<void>(spec), static_cast<void>(device);
    return {};
  }

  /// Whatever can be made before the operands are known. The default, nullptr, says that Launch
  /// needs nothing of the kind. May allocate, compile and load; called once for each plan.
  virtual Result<std::shared_ptr<const BoundLaunch<Op>>> BindLaunch(const Desc& desc,
                                                                    const Spec& spec,
                                                                    Device& device) const {
    static_cast<void>(desc), static_cast<void>(spec), static_cast<void>(device);
    return std::shared_ptr<const BoundLaunch<Op>>();
  }

  /// Computes, or enqueues the computation on `stream`. Preconditions: IsFeasible on the problem of
  /// `args` said nothing, and the workspace holds WorkspaceFor. Allocates nothing, locks nothing.
  virtual Status Launch(const Args& args, const Spec& spec, Workspace& workspace,
                        Stream stream) = 0;
};

/// All kernels of one operation in a process. Build it once, add your own beside ours, then share
/// it read-only.
template <class Op>
class OpRegistry {
 public:
  using KernelType = typename Op::KernelType;

  /// Takes ownership. A null kernel, one without a name and a second one of the same name are
  /// ErrorCode::kInvalidArgument.
  Status Add(std::unique_ptr<KernelType> kernel) {
    const KernelBase* base = kernel.get();
    if (Status status = CheckNewKernel(base, base != nullptr ? Find(base->name()) : nullptr);
        !status) {
      return status;
    }
    view_.push_back(kernel.get());
    owned_.push_back(std::move(kernel));
    return {};
  }
  std::span<KernelType* const> kernels() const { return view_; }
  KernelType* Find(std::string_view name) const {  ///< nullptr when absent
    for (KernelType* kernel : view_) {
      if (kernel->name() == name) return kernel;
    }
    return nullptr;
  }

 private:
  std::vector<std::unique_ptr<KernelType>> owned_;
  std::vector<KernelType*> view_;
};

/// A kernel's own configuration as a struct of integers. `Config` lists its members once,
///
///   struct Tiles {
///     std::int64_t rows = 4, threads = 1;
///     static constexpr auto kMembers = std::tuple{ConfigMember{"rows", &Tiles::rows, 1, 64},
///                                                 ConfigMember{"threads", &Tiles::threads, 1,
///                                                 512}};
///   };
///
/// and TypedConfig<Tiles> turns it into a LaunchConfig and back; kFields is what
/// KernelBase::ConfigFields returns.
template <class Config>
struct ConfigMember {
  std::string_view name;
  std::int64_t Config::*member;
  std::int64_t least, most;
};
template <class Config>
class TypedConfig {
  static constexpr std::size_t kCount = std::tuple_size_v<decltype(Config::kMembers)>;
  static_assert(kCount <= LaunchConfig::kWords, "a launch configuration has 8 fields at most");

 public:
  static constexpr std::array<ConfigField, kCount> kFields = [] {
    std::array<ConfigField, kCount> fields{};
    std::size_t i = 0;
    std::apply(
        [&](const auto&... m) {
          ((fields[i++] = {m.name, m.least, m.most}), ...);
        },
        Config::kMembers);
    return fields;
  }();

  static LaunchConfig Pack(const Config& config) {
    LaunchConfig packed;
    std::size_t i = 0;
    std::apply([&](const auto&... m) { ((packed.words[i++] = config.*(m.member)), ...); },
               Config::kMembers);
    return packed;
  }
  static Config Unpack(const LaunchConfig& packed) {
    Config config;
    std::size_t i = 0;
    std::apply([&](const auto&... m) { ((config.*(m.member) = packed.words[i++]), ...); },
               Config::kMembers);
    return config;
  }
};

}  // namespace tilewright
