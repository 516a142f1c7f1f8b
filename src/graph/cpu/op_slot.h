#pragma once

#include <map>

#include "engine/op_stages.h"

namespace tilewright {

/// The kernels of one operation as one dispatch uses them: each problem is decided once, then found
/// again by its value.
template <class Desc, class Args>
class OpSlot {
 public:
  OpSlot(const OpRegistry<Desc, Args>& registry, const DeviceSpec& device, std::uint32_t providers)
      : registry_(registry), device_(device), providers_(providers) {}

  /// The kernel for `desc`, decided now if it is new. The room has validated `desc`.
  Result<const OpKernel<Desc, Args>*> KernelFor(const Desc& desc) {
    Result<const OpKernel<Desc, Args>*> kernel = Decide(desc);
    if (kernel) decided_.emplace(desc, *kernel);
    return kernel;
  }

  /// Whether a call like `args` would find a kernel. Pointers are not followed; nothing is kept.
  Status Check(const Args& args, int threads) const {
    Result<Desc> desc = DescOf(args, threads);
    if (!desc) return Fail(desc.error());
    if (Result<const OpKernel<Desc, Args>*> kernel = Decide(*desc); !kernel)
      return Fail(kernel.error());
    return {};
  }

  /// Decides for a call like `args`, so that the call itself only finds. Pointers are not followed.
  Status Prepare(const Args& args, int threads) {
    Result<Desc> desc = DescOf(args, threads);
    if (!desc) return Fail(desc.error());
    if (Result<const OpKernel<Desc, Args>*> kernel = KernelFor(*desc); !kernel)
      return Fail(kernel.error());
    return {};
  }

  Status Launch(const Args& args, Stream stream) {
    Result<Desc> desc = DescOf(args, stream.exec().workers());
    if (!desc) return Fail(desc.error());
    Result<const OpKernel<Desc, Args>*> kernel = KernelFor(*desc);
    if (!kernel) return Fail(kernel.error());
    return (*kernel)->Launch(args, stream);
  }

 private:
  Result<const OpKernel<Desc, Args>*> Decide(const Desc& desc) const {
    if (auto it = decided_.find(desc); it != decided_.end()) return it->second;
    Result<OpChoice<Desc, Args>> choice = ChooseOp(desc, registry_, device_, providers_);
    if (!choice) return Fail(choice.error());
    return &choice->kernel();
  }

  const OpRegistry<Desc, Args>& registry_;
  const DeviceSpec& device_;
  std::uint32_t providers_;
  std::map<Desc, const OpKernel<Desc, Args>*> decided_;
};

}  // namespace tilewright
