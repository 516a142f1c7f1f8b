#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tilewright/kernel.h"

namespace tilewright {

/// All kernels of one operation without launch parameters (norm, rope, elementwise, ...). A room
/// offers `void AddNorm(OpRegistry<NormDesc, NormArgs>&)`, called from src/api only. Its Desc is a
/// plain aggregate with defaulted comparison and a `std::string KeyOf(const Desc&)` beside it; the
/// stages in engine/ need nothing else of an operation.
template <class Desc, class Args>
class OpRegistry {
 public:
  using Problem = Desc;
  using KernelType = OpKernel<Desc, Args>;

  Status Add(std::unique_ptr<KernelType> kernel) {
    if (Find(kernel->name()) != nullptr) {
      return Fail(ErrorCode::kInvalidArgument,
                  "kernel " + std::string(kernel->name()) + " is registered twice");
    }
    view_.push_back(kernel.get());
    owned_.push_back(std::move(kernel));
    return {};
  }
  std::span<KernelType* const> kernels() const { return view_; }
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

}  // namespace tilewright
