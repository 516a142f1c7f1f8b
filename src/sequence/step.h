#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/stage_templates.h"

namespace tilewright::sequence {

/// One step of a sequence: an operation, and the kernels that may run it. They are fixed when the
/// sequence is made, before any sequence is registered, so no sequence is ever a step of another.
/// Immutable; any thread.
template <class Op>
class Step {
 public:
  using Desc = typename Op::Desc;
  using Spec = typename Op::Spec;
  using KernelType = typename Op::KernelType;
  /// Words of a step's own configuration that fit into that of the sequence.
  static constexpr std::size_t kConfigWords = 3;

  /// `label` is the word for the step in the text of a launch: "unpack".
  Step(std::string_view label, std::vector<KernelType*> kernels)
      : label_(label), kernels_(std::move(kernels)) {}

  const std::vector<KernelType*>& kernels() const { return kernels_; }
  /// The spec's `kernel` by its place in the list; nullptr outside of it.
  KernelType* At(std::int64_t index) const {
    const bool there = index >= 0 && index < static_cast<std::int64_t>(kernels_.size());
    return there ? kernels_[static_cast<std::size_t>(index)] : nullptr;
  }
  std::int64_t IndexOf(const KernelType* kernel) const {
    return std::find(kernels_.begin(), kernels_.end(), kernel) - kernels_.begin();
  }

  /// nullopt if one of the kernels can run the problem, on any device; else the last one's reason.
  std::optional<Rejection> IsFeasible(const Desc& desc) const {
    std::optional<Rejection> no = Rejection{Reason::kType, std::string(label_), "a kernel for it"};
    for (const KernelType* kernel : kernels_) {
      no = kernel->IsFeasible(desc);
      if (!no) return no;
    }
    return no;
  }

  /// Every launch of every kernel that can run here and is not in `quarantine`; nullopt for an
  /// invalid problem.
  std::optional<Candidates<Op>> Feasible(const Desc& desc, const DeviceSpec& device,
                                         const Quarantine* quarantine) const {
    const Result<Checked<Op>> checked = Validate(desc);
    if (!checked) return std::nullopt;
    // What the steps need is counted with the rest of the sequence.
    FeasibleOptions options;
    options.partials_bytes = options.barriers_bytes = std::numeric_limits<std::size_t>::max();
    options.quarantine = quarantine;
    return Stages<Op>::Feasible(*checked, kernels_, device, options);
  }
  /// The model's choice among them.
  std::optional<Spec> Choose(const Desc& desc, const DeviceSpec& device,
                             const Quarantine* quarantine) const {
    const auto candidates = Feasible(desc, device, quarantine);
    if (!candidates) return std::nullopt;
    const auto choice = Stages<Op>::Choose(*candidates, nullptr, nullptr, DispatchPolicy::kDefault);
    if (!choice || !Fits(choice->spec().config)) return std::nullopt;
    return choice->spec();
  }

  /// Whether the sequence's configuration has room for that of a step.
  static bool Fits(const LaunchConfig& config) {
    return std::all_of(config.words.begin() + kConfigWords, config.words.end(),
                       [](std::int64_t word) { return word == 0; });
  }

  /// "unpack=copy.avx512", and in brackets the kernel's own configuration where it has one.
  std::string Text(const KernelType& kernel, const LaunchConfig& config) const {
    std::string text(label_);
    text.append("=").append(kernel.name());
    const std::string own = kernel.ConfigText(config);
    if (!own.empty()) text.append("[").append(own).append("]");
    return text;
  }
  /// Takes Text from the front of `text`, and the space behind it.
  std::optional<std::pair<KernelType*, LaunchConfig>> Take(std::string_view& text) const {
    if (!text.starts_with(label_) || !text.substr(label_.size()).starts_with("="))
      return std::nullopt;
    text.remove_prefix(label_.size() + 1);
    const std::string_view name = text.substr(0, text.find_first_of(" ["));
    text.remove_prefix(name.size());
    std::string_view own;
    if (text.starts_with("[")) {
      const std::size_t end = text.find(']');
      if (end == std::string_view::npos) return std::nullopt;
      own = text.substr(1, end - 1);
      text.remove_prefix(end + 1);
    }
    if (!text.empty() && text.front() != ' ') return std::nullopt;
    if (!text.empty()) text.remove_prefix(1);
    for (KernelType* kernel : kernels_) {
      if (kernel->name() != name) continue;
      const std::optional<LaunchConfig> config = kernel->ParseConfig(own);
      if (!config || !Fits(*config)) return std::nullopt;
      return std::pair{kernel, *config};
    }
    return std::nullopt;
  }

 private:
  std::string_view label_;
  std::vector<KernelType*> kernels_;
};

}  // namespace tilewright::sequence
