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

// An operation is a struct that names its parts,
//
//   struct Op {
//     using Desc = ...;        // the problem: a plain aggregate, the key of every cache and record
//     using Args = ...;        // pointers and views of one call
//     using KernelType = ...;  // OpKernel<Op>, or a class derived from it
//     using Spec = BasicLaunchSpec<KernelType>;
//     static constexpr std::string_view kName = "norm";  // in records, pins and commands
//   };
//
// together with ForEachField(Desc&, f), which is found by argument-dependent lookup. GEMM,
// attention, norm, RoPE, elementwise, copy, KV scatter, embedding, top-k, routing to experts and
// their sum are such operations;
// tilewright/stages.h has the functions that work on them.

/// Scratch memory of a launch, in device memory. Buffers may be larger than needed. Two threads may
/// run the same plan if each has its own workspace.
struct Workspace {
  void* barriers = nullptr;  ///< zero before the first launch; every launch leaves them zero
  std::size_t barriers_size = 0;
  void* partials = nullptr;  ///< f32 split-K partials, quantised activations; 64-byte aligned
  std::size_t partials_size = 0;
  void* tensormaps = nullptr;  ///< 64-byte aligned, written by the launch itself
  std::size_t tensormaps_size = 0;
  int* flags = nullptr;
};

/// How many bytes of each part of a Workspace a launch needs. The caller zeroes only `barriers`,
/// and only once, after allocating them.
struct WorkspaceSize {
  std::size_t barriers = 0;
  std::size_t partials = 0;
  std::size_t tensormaps = 0;
  std::size_t flags = 0;

  bool operator==(const WorkspaceSize&) const = default;
};

class Quarantine;  // records.h

/// How much of each part the caller can provide, and the largest number of k splits to try.
struct LaunchLimits {
  std::size_t barriers_bytes = std::size_t{1} << 20;
  std::size_t partials_bytes = std::size_t{32} << 20;
  int max_splits = 16;  ///< split counts tried: 1, 2, 3, 4, 6, 8, 12, 16 up to this
  /// Kernels that failed: they are not candidates, nor steps of a sequence that is one.
  const Quarantine* quarantine = nullptr;
};

/// A kernel with its launch parameters. This is what the tuner measures and the records store.
template <class KernelT>
struct BasicLaunchSpec {
  KernelT* kernel = nullptr;
  std::int32_t swizzle = 0;  ///< log2 of the traversal tile
  std::int32_t splits = 1;
  float measured_us = 0;  ///< median; 0 = never measured
  float predicted_us = 0;
  LaunchConfig config{};     ///< the kernel's own parameters; all zero if it has none
  bool provisional = false;  ///< measured_us is of a session that did not finish

  bool operator==(const BasicLaunchSpec& o) const {
    return kernel == o.kernel && swizzle == o.swizzle && splits == o.splits && config == o.config;
  }
};

/// Launch parameters as text: swizzle, splits, then the kernel's own configuration, such as
/// "swizzle=1 splits=2 threads=8".
std::string LaunchText(const KernelBase& kernel, std::int32_t swizzle, std::int32_t splits,
                       const LaunchConfig& config);
template <class KernelT>
std::string SpecText(const BasicLaunchSpec<KernelT>& spec) {
  if (spec.kernel != nullptr)
    return LaunchText(*spec.kernel, spec.swizzle, spec.splits, spec.config);
  return "swizzle=" + std::to_string(spec.swizzle) + " splits=" + std::to_string(spec.splits);
}

/// The inverse of LaunchText; nullopt for any other text: unknown words, swizzle outside 0..30,
/// splits outside 1..4096, or a configuration that `kernel` does not parse.
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

/// A launch in which everything that does not depend on the operands is resolved: a loaded function
/// and its grid, or a library's primitive. Immutable; any number of threads may launch it, each
/// with its own workspace.
template <class Op>
class BoundLaunch {
 public:
  virtual ~BoundLaunch() = default;
  virtual Status Launch(const typename Op::Args& args, Workspace& workspace,
                        Stream stream) const = 0;
};

/// What the caller of an operation specifies besides the arguments.
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

  /// nullopt exactly if Launch supports this problem; else the first reason why it does not.
  virtual std::optional<Rejection> IsFeasible(const Desc& desc) const = 0;

  /// Launch parameters worth trying for a feasible problem, in ascending order of splits, then of
  /// swizzle; `kernel` may be left null. The caller drops those that need more workspace than
  /// `limits`. The default returns one.
  virtual std::vector<Spec> Specs(const Desc& desc, const DeviceSpec& device,
                                  const LaunchLimits& limits) const {
    static_cast<void>(desc), static_cast<void>(device), static_cast<void>(limits);
    return {Spec{}};
  }

  /// Predicted time on `device`, in microseconds. It ranks kernels that were not measured.
  virtual double EstimateUs(const Desc& desc, const Spec& spec, const DeviceSpec& device) const = 0;

  /// The workspace that Launch needs for `desc` with `spec` on `device`; on the CPU, with an
  /// executor of at most DeviceSpec::cores workers.
  virtual WorkspaceSize WorkspaceFor(const Desc& desc, const Spec& spec,
                                     const DeviceSpec& device) const {
    static_cast<void>(desc), static_cast<void>(spec), static_cast<void>(device);
    return {};
  }

  /// Prepares everything that does not depend on the operands. May allocate, compile and load;
  /// called once per plan. The default returns nullptr: nothing to prepare, the plan calls Launch.
  virtual Result<std::shared_ptr<const BoundLaunch<Op>>> BindLaunch(const Desc& desc,
                                                                    const Spec& spec,
                                                                    Device& device) const {
    static_cast<void>(desc), static_cast<void>(spec), static_cast<void>(device);
    return std::shared_ptr<const BoundLaunch<Op>>();
  }

  /// Computes, or enqueues the computation on `stream`. Preconditions: IsFeasible returned nullopt
  /// for the problem of `args`, and the workspace is at least as large as WorkspaceFor says.
  /// Allocates nothing, locks nothing.
  virtual Status Launch(const Args& args, const Spec& spec, Workspace& workspace,
                        Stream stream) = 0;
};

/// The kernels of one operation. Fill it once, adding your own kernels if you like, then share it
/// read-only.
template <class Op>
class OpRegistry {
 public:
  using KernelType = typename Op::KernelType;

  /// Takes ownership. kInvalidArgument for a null kernel, one without a name, or one whose name is
  /// taken.
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
  /// nullptr if there is no kernel of that name.
  KernelType* Find(std::string_view name) const {
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
///     static constexpr auto kMembers = std::tuple{
///         ConfigMember{"rows", &Tiles::rows, 1, 64},
///         ConfigMember{"threads", &Tiles::threads, 1, 512}};
///   };
///
/// and TypedConfig<Tiles> converts it to a LaunchConfig and back. KernelBase::ConfigFields returns
/// kFields.
template <class Config>
struct ConfigMember {
  std::string_view name;
  std::int64_t Config::*member;
  std::int64_t least, most;
};
template <class Config>
class TypedConfig {
  static constexpr std::size_t kCount = std::tuple_size_v<decltype(Config::kMembers)>;
  static_assert(kCount <= LaunchConfig::kWords, "a launch configuration has at most 8 fields");

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
