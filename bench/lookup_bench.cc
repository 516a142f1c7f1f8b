// Time and heap allocations of one lookup in the dispatch cache, with the real kernels and the
// problems of a small model: exact (Find), the next larger batch (LowerBound) and the next smaller
// one (FloorBound), which re-check the kernel at the exact shape.
//
//   lookup_bench [ROUNDS]
// prints one JSON object: entries, and ns_median, ns_min, ns_max, allocations of each lookup.
// ns of one lookup = time of a round over all problems in shuffled order / problems.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "core/allocation_probe.h"
#include "core/random.h"
#include "ops/gemm/register.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

constexpr int kBatches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
constexpr struct {
  std::int32_t n, k;
} kShapes[] = {{960, 576},   {576, 576},   {3072, 576},   {576, 1536}, {49152, 576},
               {3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}};

/// Every batch of every shape and type that some kernel takes, each with the first such kernel.
std::vector<GemmDesc> Fill(DispatchCache& cache, const Registry& registry) {
  std::vector<GemmDesc> problems;
  for (const DataType type :
       {DataType::kF32, DataType::kBF16, DataType::kQ4_0, DataType::kQ4_1, DataType::kQ8_0}) {
    for (const auto& [n, k] : kShapes) {
      for (const int m : kBatches) {
        GemmDesc desc;
        desc.m = m, desc.n = n, desc.k = k;
        desc.type_b = type;
        for (Kernel* kernel : registry.kernels()) {
          desc.pack_b = kernel->desc().pack_b;
          LaunchSpec spec;
          spec.kernel = kernel;
          spec.measured_us = 1;
          if (kernel->info().reference || kernel->IsFeasible(desc) || !cache.Insert(desc, spec))
            continue;
          problems.push_back(desc);
          break;
        }
      }
    }
  }
  Random random(3);
  for (std::size_t i = problems.size(); i > 1; --i)
    std::swap(problems[i - 1], problems[random.Below(i)]);
  return problems;
}

/// JSON of one kind of lookup; false in `served` when a problem found nothing.
template <class Lookup>
std::string Measure(const char* name, const std::vector<GemmDesc>& problems, int rounds,
                    bool& served, Lookup lookup) {
  std::vector<double> ns(static_cast<std::size_t>(rounds));
  std::size_t hits = 0;
  const long before = AllocationProbe::Count();
  for (double& took : ns) {
    const auto start = std::chrono::steady_clock::now();
    for (const GemmDesc& problem : problems) hits += lookup(problem) ? 1 : 0;
    const std::chrono::duration<double, std::nano> span = std::chrono::steady_clock::now() - start;
    took = span.count() / static_cast<double>(problems.size());
  }
  const long allocations = AllocationProbe::Count() - before;
  served = served && hits == problems.size() * ns.size();
  std::sort(ns.begin(), ns.end());
  return fmt::format(
      R"("{}":{{"ns_median":{:.1f},"ns_min":{:.1f},"ns_max":{:.1f},"allocations":{}}})", name,
      ns[ns.size() / 2], ns.front(), ns.back(), allocations);
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2001;
  Registry registry;
  AddGemm(registry);
  DispatchCache cache({registry.kernels().begin(), registry.kernels().end()});
  const std::vector<GemmDesc> exact = Fill(cache, registry);
  // Batches that nobody tuned, each between two that somebody did.
  std::vector<GemmDesc> between;
  for (const GemmDesc& problem : exact) {
    if (problem.m < 4 || problem.m > 256) continue;
    between.push_back(problem);
    between.back().m -= 1;
  }
  bool served = true;
  const std::string find = Measure("find", exact, rounds, served,
                                   [&](const GemmDesc& d) { return cache.Find(d).has_value(); });
  const std::string lower = Measure("lower_bound", between, rounds, served, [&](const GemmDesc& d) {
    return cache.LowerBound(d).has_value();
  });
  const std::string floor = Measure("floor_bound", between, rounds, served, [&](const GemmDesc& d) {
    return cache.FloorBound(d).has_value();
  });
  fmt::print("{{\"entries\":{},\"rounds\":{},{},{},{}}}\n", cache.size(), rounds, find, lower,
             floor);
  if (!served) fmt::print(stderr, "lookup_bench: a problem was not served\n");
  return served ? 0 : 1;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
