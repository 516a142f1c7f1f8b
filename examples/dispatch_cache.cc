// A dispatch cache: the winners of earlier measurements, written as JSON Lines and read again,
// here, elsewhere or by a later version of the program. What is read is checked: nothing that does
// not fit is ever served.

#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tilewright/tilewright.h"

namespace tw = tilewright;

namespace {

constexpr int kN = 96, kK = 256;

tw::GemmDesc Problem(int m) {
  tw::GemmDesc problem;  // f32 all over, weights plain
  problem.m = m, problem.n = kN, problem.k = kK;
  return problem;
}

// The best of a few runs in microseconds. (tilewright/tuner.h does this properly: paired, checked,
// with intervals.)
float Time(const tw::GemmPlan& plan) {
  const int m = plan.problem().m;
  const std::vector<float> a(static_cast<std::size_t>(m * kK), 1.0f), b(kN * kK, 2.0f);
  std::vector<float> d(static_cast<std::size_t>(m * kN));
  const tw::Buffer scratch = tw::Buffer::Make(plan.partials_bytes() + 64);
  tw::Workspace workspace;
  workspace.partials = scratch.data(), workspace.partials_size = scratch.size();
  tw::GemmArgs args;
  args.a = a.data(), args.b = b.data(), args.d = d.data();
  args.a_layout = {.rows = m, .cols = kK, .ld = kK};
  args.a_layout.order = tw::Order::kRowMajor;
  args.b_layout = {.rows = kK, .cols = kN, .ld = kK};
  args.b_layout.order = tw::Order::kColMajor;
  args.d_layout = {.rows = m, .cols = kN, .ld = kN};
  args.d_layout.order = tw::Order::kRowMajor;
  args.c_layout = args.d_layout;
  double best = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const auto start = std::chrono::steady_clock::now();
    if (!tw::Run(plan, args, workspace, {})) return 0;
    const double us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    if (best == 0 || us < best) best = us;
  }
  return static_cast<float>(best);
}

std::string Answer(const std::optional<tw::LaunchSpec>& spec) {
  return spec ? std::string(spec->kernel->name()) + " " + tw::SpecText(*spec) : "nothing";
}

}  // namespace

int main() {
  const auto device = tw::DetectCpu();
  if (!device) return std::printf("%s\n", device.error().message.c_str()), 1;
  tw::Registry registry;
  tw::AddAllGemm(registry);
  const std::vector<tw::Kernel*> kernels(registry.kernels().begin(), registry.kernels().end());

  // Measure what the model proposes for two batch sizes and keep it. A time of another device would
  // mean nothing here, so a cache says which class of devices its times are of.
  tw::DispatchCache measured(kernels, device->ClassId());
  for (const int m : {4, 64}) {
    const auto choice =
        tw::Choose(tw::Feasible(*tw::Validate(Problem(m)), registry, *device), nullptr);
    if (!choice) return std::printf("%s\n", choice.error().message.c_str()), 1;
    tw::LaunchSpec spec = choice->spec();
    spec.measured_us = Time(*tw::Bind(*choice));
    if (!measured.Insert(Problem(m), spec)) return 1;
  }

  std::ostringstream file;
  const int written = measured.Export(file);
  std::printf("%d entries exported, %zu bytes\n", written, file.str().size());

  // Another run of the program.
  tw::DispatchCache cache(kernels, device->ClassId());
  std::istringstream again(file.str());
  const int resolved = cache.Import(again);
  std::printf("%d entries imported\n", resolved);
  const auto exact = cache.Find(Problem(4));
  std::printf("m =  4: %s\n", Answer(exact).c_str());
  // 16 rows were never measured. LowerBound answers with the smallest measured batch above,
  // FloorBound with the largest below.
  std::printf("m = 16: exactly %s; above %s; below %s\n", Answer(cache.Find(Problem(16))).c_str(),
              Answer(cache.LowerBound(Problem(16))).c_str(),
              Answer(cache.FloorBound(Problem(16))).c_str());
  const auto choice =
      tw::Choose(tw::Feasible(*tw::Validate(Problem(16)), registry, *device), &cache);
  std::printf("        chosen %s, %s\n", std::string(choice->kernel().name()).c_str(),
              choice->why().c_str());

  // A damaged line is counted and left out; the other one stands.
  std::string damaged = file.str();
  damaged[damaged.rfind('}') - 3] ^= 1;
  tw::DispatchCache careful(kernels, device->ClassId());
  std::istringstream broken(damaged);
  const int survivors = careful.Import(broken);
  std::printf("after damage: %d imported, %d corrupt\n", survivors, careful.last_import().corrupt);

  // Times of another machine are kept for its sake, and never served here.
  tw::DispatchCache elsewhere(kernels, "cpu/another machine");
  std::istringstream foreign(file.str());
  elsewhere.Import(foreign);
  std::printf("elsewhere: %d foreign, %zu served\n", elsewhere.last_import().foreign,
              elsewhere.size());

  const bool right = written == 2 && resolved == 2 && exact.has_value() &&
                     choice->provenance() == tw::Provenance::kInterpolated && survivors == 1 &&
                     careful.last_import().corrupt == 1 && elsewhere.size() == 0;
  return right ? 0 : 1;
}
