#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "tilewright/device_dispatch.h"
#include "tilewright/kernel_dispatch.h"
#include "tilewright/kernels.h"

namespace tilewright {

/// What a survey has found.
struct SurveyFindings {
  std::set<std::string, std::less<>> kernels;  ///< names
  std::map<std::string, std::string> lacking;  ///< by operation and weight type: a problem of it
};

/// How much longer than the first candidate another one may be predicted to take and still be
/// noted. Predictions are off by up to 1.4 where they were fitted (engine/compiled/launch_cost.h).
inline constexpr double kSurveyedOverFastest = 1.5;

/// A dispatch that runs nothing: of every problem that graphs pose, it notes the kernels that may be
/// chosen for it on `device`, which need not exist (MakeUnbackedDevice). These are the model's first
/// choice and every candidate that it predicts to take at most kSurveyedOverFastest times as long,
/// each with the steps that it consists of; kernels of vendors' libraries aside. A problem that no
/// kernel takes is noted too, and refused only where a fusion asks. One thread at a time; what it
/// is made with must outlive it.
class KernelSurvey final : public KernelDispatch {
 public:
  KernelSurvey(const Kernels& kernels, Device& device, Precision activations,
               SurveyFindings& findings);

  std::string_view name() const override { return "survey"; }
  Device* device() const override { return &device_; }
  std::optional<Rejection> Supports(const Graph& graph, const TensorNode& node) const override;
  Status Prepare(const Graph& graph) override;
  /// A problem that no graph poses: what greedy decoding and sampling find of the logits.
  void Pose(const top_k::Desc& problem) const;

 private:
  /// The first problem of an operation that the node poses and no kernel takes; "" if there is none.
  std::string Look(const Graph& graph, const TensorNode& node, std::string& label) const;
  template <class Op>
  bool Serve(const typename Op::Desc& problem) const;

  const Kernels& kernels_;
  Device& device_;
  DeviceDispatch poses_;
  FeasibleOptions options_;
  SurveyFindings& findings_;
  mutable std::map<std::string, bool> known_;  // by operation and problem: whether it is served
};

}  // namespace tilewright
