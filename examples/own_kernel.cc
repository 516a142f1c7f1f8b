// A kernel of one's own: added to the registry beside ours, it takes part in every race under the
// same rules. This one computes products with a single output (n = 1, a classifier's head), where
// ours spend their effort on columns that are not there. The tuner checks it against the oracle,
// times it against all others, and records who won; the dispatcher then chooses by record.

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tilewright/tilewright.h"
#include "tilewright/tune_gemm.h"

namespace tw = tilewright;

namespace {

class DotKernel final : public tw::Kernel {
 public:
  DotKernel() : Kernel(Info(), Takes()) {}

  // The base compares types, orders and packing with Takes(); what else we need, we add.
  std::optional<tw::Rejection> IsFeasible(const tw::GemmDesc& problem) const override {
    if (auto no = Kernel::IsFeasible(problem)) return no;
    if (problem.n != 1)
      return tw::Rejection{tw::Reason::kShape, "n = " + std::to_string(problem.n), "n = 1"};
    return std::nullopt;
  }

  // Microseconds. Only the order among kernels matters, and only until somebody measures.
  double EstimateUs(const tw::GemmDesc& problem, const tw::LaunchSpec&,
                    const tw::DeviceSpec&) const override {
    return 0.1 + 1e-4 * problem.m * problem.k;
  }

  tw::Status Launch(const tw::GemmArgs& args, const tw::LaunchSpec&, tw::Workspace&,
                    tw::Stream) override {
    const auto* b = static_cast<const float*>(args.b);
    for (int row = 0; row < args.a_layout.rows; ++row) {
      const float* a = static_cast<const float*>(args.a) + row * args.a_layout.ld;
      static_cast<float*>(args.d)[row * args.d_layout.ld] = Dot(a, b, args.a_layout.cols);
    }
    return {};
  }

 private:
  // Sixteen sums side by side: the compiler turns them into vectors without having to reorder one
  // long sum.
  static float Dot(const float* a, const float* b, int count) {
    std::array<float, 16> sums{};
    int i = 0;
    for (; i + 16 <= count; i += 16) {
      for (int lane = 0; lane < 16; ++lane)
        sums[static_cast<std::size_t>(lane)] += a[i + lane] * b[i + lane];
    }
    float total = 0;
    for (const float sum : sums) total += sum;
    for (; i < count; ++i) total += a[i] * b[i];
    return total;
  }

  static tw::KernelInfo Info() {
    tw::KernelInfo info;
    info.name = "acme.dot.f32";
    info.fingerprint = "1";  // change it with the code: records of another one are ignored
    info.provider = tw::Provider::kUser;
    info.batch_invariant = true;
    return info;
  }
  static tw::KernelDesc Takes() {
    tw::KernelDesc takes;
    takes.type_a = takes.type_b = takes.type_c = tw::Bit(tw::DataType::kF32);
    takes.scaling = tw::Bit(tw::Scaling::kOneZero);  // no alpha, no beta: others will serve those
    return takes;
  }
};

}  // namespace

int main() {
  const tw::Result<tw::DeviceSpec> device = tw::DetectCpu();
  if (!device) return std::printf("%s\n", device.error().message.c_str()), 1;
  tw::Registry registry;
  tw::AddAllGemm(registry);
  if (tw::Status added = registry.Add(std::make_unique<DotKernel>()); !added) return 1;

  tw::GemmDesc problem;
  problem.m = 1, problem.n = 1, problem.k = 4096;
  problem.pack_b = tw::kPackAny;

  // The race. Records live in memory here; a program would keep them in a file
  // (Records::DefaultPath).
  tw::Records records = tw::Records::Open("");
  const tw::RecordScope scope{device->ClassId(), "", tw::MeasurePolicy::kWarm};
  tw::MeasurerOptions measure;
  measure.policy = scope.policy;
  const auto measurer = tw::MakeCpuGemmMeasurer(tw::SerialExecutor(), measure);
  tw::TuneOptions options;
  options.scope = scope;
  options.budget_seconds = 5;
  const tw::TuneProblem problems[] = {{problem, 1}};
  const auto report = tw::Tune(problems, registry, *device, records, *measurer, options);
  if (!report) return std::printf("%s\n", report.error().message.c_str()), 1;
  const tw::TuneRow& row = report->rows[0];
  std::printf("%d candidates, %d timed: %s wins with %.2f us\n", row.candidates, row.timed,
              row.kernel.c_str(), row.us);

  // From now on the records answer: first which layout the weights should have, then which kernel
  // reads it.
  const tw::DispatchCache cache = tw::BuildCache(records.Load(), registry, scope);
  const tw::BatchWeight batches[] = {{1, 1.0}};
  const auto pack = tw::ChoosePack(problem, batches, registry, *device, {}, &cache);
  if (!pack) return std::printf("%s\n", pack.error().message.c_str()), 1;
  problem.pack_b = pack->pack;
  const auto checked = tw::Validate(problem);
  const auto choice = tw::Choose(tw::Feasible(*checked, registry, *device), &cache);
  if (!choice) return std::printf("%s\n", choice.error().message.c_str()), 1;
  std::printf("weights %s, kernel %s, %s\n", tw::PackName(pack->pack).c_str(),
              std::string(choice->kernel().name()).c_str(), choice->why().c_str());
  for (const tw::CandidateReport& line :
       tw::Explain(tw::Feasible(*checked, registry, *device), &*choice, records.Load(), scope)) {
    if (line.feasible && line.measured_us > 0)
      std::printf("  %-44s %8.2f us measured, %.2f predicted\n", line.kernel.c_str(),
                  line.measured_us, line.predicted_us);
  }

  // It serves what it is good at and nothing else.
  problem.n = 2;
  const auto two = tw::Feasible(*tw::Validate(problem), registry, *device);
  std::printf("n = 2: %s\n", two.Find("acme.dot.f32")->rejection->ToString().c_str());
  const bool won = choice->kernel().name() == "acme.dot.f32" &&
                   choice->provenance() == tw::Provenance::kMeasured;
  if (!won && !row.conclusive) {
    std::printf("this machine is too busy to tell the candidates apart\n");
    return 0;
  }
  return won ? 0 : 1;
}
