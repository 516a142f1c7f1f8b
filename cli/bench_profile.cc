#include "bench_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "console.h"

namespace tilewright::cli {
namespace {

/// Least time of a step: its bytes at the rate of the memory, or its operations at the peak.
double FloorUs(const StepGroup& group, const MachineRates& rates) {
  return std::max(group.bytes / (rates.read_gb_s * 1e3), group.ops / (rates.peak.giga_ops * 1e3));
}

double SumUs(const StepTimes& steps) {
  double sum = 0;
  for (const StepGroup& group : steps.groups) sum += group.count * group.us;
  return sum;
}

std::string KernelText(const StepGroup& group) {
  return group.spec.empty() ? group.kernel : group.kernel + " " + group.spec;
}

}  // namespace

Report ReportSteps(const StepTimes& steps, const MachineRates& rates) {
  Report report;
  report.Set("pass_us", steps.pass_us).Set("sum_us", SumUs(steps)).Array("groups");
  for (const StepGroup& group : steps.groups) {
    Report line;
    line.Set("operation", TensorOpName(group.op))
        .Set("first", group.name)
        .Set("kernel", group.kernel)
        .Set("spec", group.spec)
        .Set("count", group.count)
        .Set("us", group.us)
        .Set("bytes", group.bytes)
        .Set("operations", group.ops)
        .Set("floor_us", FloorUs(group, rates));
    report.Append("groups", std::move(line));
  }
  return report;
}

void PrintSteps(std::string_view test, int batch, const StepTimes& steps,
                const MachineRates& rates) {
  std::vector<const StepGroup*> order;
  for (const StepGroup& group : steps.groups) order.push_back(&group);
  std::stable_sort(order.begin(), order.end(), [](const StepGroup* a, const StepGroup* b) {
    return a->count * a->us > b->count * b->us;
  });
  Table table({"step", "count", "us each", "us", "GB/s", "Gop/s", "of floor", "kernel"},
              {true, false, false, false, false, false, false, true});
  for (const StepGroup* group : order) {
    const double floor = FloorUs(*group, rates);
    table.Row({fmt::format("{} {}", TensorOpName(group->op), group->name),
               fmt::format("{}", group->count), fmt::format("{:.2f}", group->us),
               fmt::format("{:.1f}", group->count * group->us),
               fmt::format("{:.0f}", group->bytes / group->us / 1e3),
               fmt::format("{:.0f}", group->ops / group->us / 1e3),
               fmt::format("{:.0f} %", 100 * floor / group->us), KernelText(*group)});
  }
  Out(fmt::format(
      "\n{}, batch {}: a pass takes {:.1f} us, its steps one kind at a time {:.1f} us\n", test,
      batch, steps.pass_us, SumUs(steps)));
  Out(table.Text());
}

}  // namespace tilewright::cli
