#include <utility>

#include "tilewright/kernels.h"

namespace tilewright {

std::unique_ptr<const DispatchCaches> DispatchCaches::Over(const Records& records,
                                                           const Kernels& kernels,
                                                           const RecordScope& scope) {
  const auto index = std::make_shared<const Records::Index>(
      records.MakeIndex("", scope, [](std::string_view op, std::string_view problem) {
        std::uint64_t group = 0;
        ForEachOperation([&]<class Op>() {
          if (Op::kName == op) group = DispatchCacheOf<Op>::GroupOf(problem);
        });
        return group;
      }));
  const std::vector<Record> failures = records.LoadFailures(*index);
  std::unique_ptr<DispatchCaches> all(new DispatchCaches);
  ForEachOperation([&]<class Op>() {
    auto& cache = std::get<std::optional<DispatchCacheOf<Op>>>(all->caches_);
    cache.emplace(DispatchCacheOf<Op>::Over(records, index, failures, kernels.of<Op>(), scope));
    if (index->Has(Op::kName)) all->tuned_.Set<Op>(&*cache);
    AddToQuarantine<Op>(all->quarantine_, failures, scope);
  });
  return all;
}

BuildReport CountRecords(const Records& records, const Kernels& kernels, const RecordScope& scope) {
  BuildReport all;
  const std::vector<Record> rows = records.Load();
  ForEachOperation([&]<class Op>() {
    BuildReport one;
    static_cast<void>(BuildCache<Op>(rows, kernels.of<Op>(), scope, &one));
    all += one;
  });
  return all;
}

}  // namespace tilewright
