#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include "tilewright/attention.h"
#include "tilewright/combine.h"
#include "tilewright/copy.h"
#include "tilewright/dispatch_cache.h"
#include "tilewright/elementwise.h"
#include "tilewright/embedding.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/kv_scatter.h"
#include "tilewright/norm.h"
#include "tilewright/rope.h"
#include "tilewright/route.h"
#include "tilewright/top_k.h"

namespace tilewright {

template <class... Ops>
struct OperationList {};

/// The one list of all operations. Registries, dispatches, the verifier, records, tuning and the
/// command line work from it: an operation that is added is added here.
using AllOperations =
    OperationList<GemmOp, norm::Op, rope::Op, elementwise::Op, copy::Op, kv_scatter::Op,
                  embedding::Op, attention::Op, top_k::Op, route::Op, combine::Op>;

namespace internal {
template <class List>
struct PerOperation;
template <class... Ops>
struct PerOperation<OperationList<Ops...>> {
  using Registries = std::tuple<OpRegistry<Ops>...>;
  using Tuned = std::tuple<const TunedSpecs<Ops>*...>;
  using Caches = std::tuple<std::optional<DispatchCacheOf<Ops>>...>;
  template <class F>
  static void ForEach(F&& f) {
    (f.template operator()<Ops>(), ...);
  }
};
}  // namespace internal

/// Calls f.template operator()<Op>() for every operation, in the order of the list.
template <class F>
void ForEachOperation(F&& f) {
  internal::PerOperation<AllOperations>::ForEach(f);
}

/// Every kernel of a device, by operation. Fill it, add kernels of your own beside ours, then share
/// it read-only.
class Kernels {
 public:
  template <class Op>
  OpRegistry<Op>& of() {
    return std::get<OpRegistry<Op>>(registries_);
  }
  template <class Op>
  const OpRegistry<Op>& of() const {
    return std::get<OpRegistry<Op>>(registries_);
  }
  Registry& gemm() { return of<GemmOp>(); }
  const Registry& gemm() const { return of<GemmOp>(); }

  /// Calls `visit` with every kernel, operation by operation ("gemm", "norm", ...).
  void ForEach(
      const std::function<void(std::string_view op, const KernelBase& kernel)>& visit) const {
    ForEachOperation([&]<class Op>() {
      for (const auto* kernel : of<Op>().kernels()) visit(Op::kName, *kernel);
    });
  }

 private:
  internal::PerOperation<AllOperations>::Registries registries_;
};

/// What was tuned, by operation; nullptr where nothing was. The tables must outlive it.
class TunedKernels {
 public:
  template <class Op>
  const TunedSpecs<Op>* of() const {
    return std::get<const TunedSpecs<Op>*>(tuned_);
  }
  template <class Op>
  void Set(const TunedSpecs<Op>* tuned) {
    std::get<const TunedSpecs<Op>*>(tuned_) = tuned;
  }

 private:
  internal::PerOperation<AllOperations>::Tuned tuned_{};
};

/// The dispatch caches of all operations over the records of one scope. Made in one pass over the
/// file; what concerns a problem is read when it is first asked for, as DispatchCacheOf::Over says.
class DispatchCaches {
 public:
  /// `records` and `kernels` must outlive it.
  static std::unique_ptr<const DispatchCaches> Over(const Records& records, const Kernels& kernels,
                                                    const RecordScope& scope);
  DispatchCaches(const DispatchCaches&) = delete;

  template <class Op>
  const DispatchCacheOf<Op>& of() const {
    return *std::get<std::optional<DispatchCacheOf<Op>>>(caches_);
  }
  /// For a dispatch: the caches of those operations that have records.
  const TunedKernels& tuned() const { return tuned_; }
  /// The kernels of all operations that failed.
  const Quarantine& quarantine() const { return quarantine_; }

 private:
  DispatchCaches() = default;
  internal::PerOperation<AllOperations>::Caches caches_;
  TunedKernels tuned_;
  Quarantine quarantine_;
};

/// BuildCache's counts over the records of all operations.
BuildReport CountRecords(const Records& records, const Kernels& kernels, const RecordScope& scope);

}  // namespace tilewright
