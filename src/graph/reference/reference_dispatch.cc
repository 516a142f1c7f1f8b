#include "graph/forwarding_dispatch.h"
#include "ops/attention/attention.h"
#include "ops/copy/copy.h"
#include "ops/copy/kv_scatter.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/experts/combine.h"
#include "ops/experts/route.h"
#include "ops/gemm/reference.h"
#include "ops/norm/norm.h"
#include "ops/rope/rope.h"
#include "ops/top_k/top_k.h"
#include "tilewright/device_dispatch.h"

namespace tilewright {
namespace {

/// A device whose only kernels are the oracles.
struct ReferenceParts {
  explicit ReferenceParts(Executor* executor)
      : device(MakeCpuDevice(HostDevice().spec(), {.executor = executor})) {
    AddReference(kernels.of<GemmOp>());
    norm::AddReference(kernels.of<norm::Op>());
    rope::AddReference(kernels.of<rope::Op>());
    elementwise::AddReference(kernels.of<elementwise::Op>());
    copy::AddReference(kernels.of<copy::Op>());
    kv_scatter::AddReference(kernels.of<kv_scatter::Op>());
    embedding::AddReference(kernels.of<embedding::Op>());
    attention::AddReference(kernels.of<attention::Op>());
    top_k::AddReference(kernels.of<top_k::Op>());
    route::AddReference(kernels.of<route::Op>());
    combine::AddReference(kernels.of<combine::Op>());
    dispatch = std::make_unique<DeviceDispatch>(kernels, *device, DispatchOptions{});
  }
  Kernels kernels;
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceDispatch> dispatch;
};

class ReferenceDispatch final : private ReferenceParts, public ForwardingDispatch {
 public:
  explicit ReferenceDispatch(Executor* executor)
      : ReferenceParts(executor), ForwardingDispatch(*dispatch) {}
  std::string_view name() const override { return "reference"; }
  Result<BoundSteps> BindSteps(const Graph& graph) override { return dispatch->BindSteps(graph); }

 protected:
  Status Around(const TensorNode&, std::span<const TensorView>, const TensorView&,
                Call call) override {
    return call(*dispatch);
  }
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeReferenceDispatch(Executor* executor) {
  return std::make_unique<ReferenceDispatch>(executor);
}

}  // namespace tilewright
