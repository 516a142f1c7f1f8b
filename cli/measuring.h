#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "tilewright/tilewright.h"
#include "tilewright/tune.h"
#include "verbs.h"

namespace tilewright::cli {

/// Where candidates are tried: in a worker process, which one that crashes or hangs does not
/// survive, or in this process, where there is no worker and the device is the CPU.
class Measuring {
 public:
  /// Under the policy of `context`. Prints why there is no worker. On a GPU that is an error: a candidate that faults would take
  /// the device from all that follow. `context` must outlive it.
  static Result<Measuring> Start(Context& context, const TrialOptions& trial,
                                 std::string_view verb);

  template <class Op>
  std::unique_ptr<Measurer<Op>> Make() const {
    auto here = [&device = context_->device(), options = options_] {
      return MakeMeasurer<Op>(device, options);
    };
    if (worker_ == nullptr) return here();
    return std::make_unique<WorkerMeasurer<Op>>(*worker_, here);
  }
  /// nullptr: in this process.
  const MeasureWorker* worker() const { return worker_.get(); }

 private:
  Measuring(Context& context, const MeasurerOptions& options)
      : context_(&context), options_(options) {}

  Context* context_;
  MeasurerOptions options_;
  std::unique_ptr<MeasureWorker> worker_;
};

/// What a product is unless its words say more: on a GPU of the activations that sessions have
/// there.
GemmWords UsualWords(const Context& context);
/// The product as a pass on this device poses it: on a GPU with the alignment that operands without
/// padding have, where it promises none.
GemmDesc PosedOn(const DeviceSpec& device, GemmDesc desc);
inline GemmDesc PosedOn(const Context& context, const GemmDesc& desc) {
  return PosedOn(context.device_spec(), desc);
}

}  // namespace tilewright::cli
