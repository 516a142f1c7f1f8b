// A first GEMM: D = A * B with weights B quantised to Q8_0, by the path that every product takes:
//
//   GemmDesc -> Validate -> Feasible -> Choose -> Bind -> Run
//
// Prints which kernels could run it, which one will and who said so, then checks the numbers.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tilewright/tilewright.h"

namespace tw = tilewright;

namespace {

constexpr int kM = 3, kN = 48, kK = 256;  // tokens, outputs, inputs

// Small whole numbers: every sum is exact, so the result can be compared with ==.
int Weight(int n, int k) { return (n * 7 + k * k) % 15 - 7; }
int Activation(int m, int k) { return (m * 3 + k) % 7 - 2; }

// Weights as a GGUF file has them, [n][k]: blocks of 32 values along k, an f16 scale (1.0 here) and
// 32 signed bytes.
std::vector<std::uint8_t> MakeWeights() {
  std::vector<std::uint8_t> bytes;
  for (int n = 0; n < kN; ++n) {
    for (int block = 0; block < kK / 32; ++block) {
      bytes.push_back(0x00), bytes.push_back(0x3c);  // 1.0 as f16
      for (int i = 0; i < 32; ++i)
        bytes.push_back(static_cast<std::uint8_t>(Weight(n, block * 32 + i)));
    }
  }
  return bytes;
}

template <class T>
bool Failed(const tw::Result<T>& result) {
  if (!result) std::printf("error: %s\n", result.error().message.c_str());
  return !result;
}

}  // namespace

int main() {
  // The device is a value, the kernels a list; an executor runs them. None of the three is global.
  const tw::Result<tw::DeviceSpec> device = tw::DetectCpu();
  if (Failed(device)) return 1;
  tw::Registry registry;
  tw::AddAllGemm(registry);
  const auto threads = tw::MakeThreadPool(tw::DefaultThreads());
  const tw::Stream stream{threads.get()};

  // 1. The problem. Everything that matters to the choice is in here; there are no pointers yet.
  tw::GemmDesc problem;
  problem.m = kM, problem.n = kN, problem.k = kK;
  problem.type_a = tw::DataType::kF32;   // activations, [m][k]
  problem.type_b = tw::DataType::kQ8_0;  // weights, [n][k]
  problem.type_c = tw::DataType::kF32;   // the result, [m][n]
  problem.pack_b = tw::kPackAny;         // we have not packed the weights yet: any layout will do
  problem.precision = tw::Precision::kF32;  // do not round the activations to int8
  const auto checked = tw::Validate(problem);
  if (Failed(checked)) return 1;

  // 2. Who can run it? Every kernel is here, with its launch parameters or with its reason for no.
  const tw::GemmCandidates candidates = tw::Feasible(*checked, registry, *device);
  std::printf("%s\n\n%d of %zu kernels can run it, for example not\n", tw::KeyOf(problem).c_str(),
              candidates.feasible_count(), candidates.all().size());
  for (const tw::GemmCandidate& candidate : candidates.all()) {
    if (candidate.feasible()) continue;
    std::printf("  %-48s %s\n", std::string(candidate.kernel->name()).c_str(),
                candidate.rejection->ToString().c_str());
    break;
  }

  // 3. Which one? Nobody has tuned anything here, so the model decides; with records (a
  // DispatchCache) a measurement would.
  const auto choice = tw::Choose(candidates, /*records=*/nullptr);
  if (Failed(choice)) return 1;
  std::printf("chosen\n  %-48s by %s, %.1f us predicted\n\n",
              std::string(choice->kernel().name()).c_str(), choice->why().c_str(),
              static_cast<double>(choice->spec().predicted_us));

  // 4. The kernel says how it wants the weights to lie. Packing happens once, when a model is
  // loaded.
  const auto plan = tw::Bind(*choice);
  if (Failed(plan)) return 1;
  const tw::Kernel& kernel = choice->kernel();
  const std::vector<std::uint8_t> weights = MakeWeights();
  tw::MatrixLayout b_layout{
      .type = tw::DataType::kQ8_0, .order = tw::Order::kColMajor, .rows = kK, .cols = kN, .ld = kK};
  tw::Buffer packed;
  const void* b = weights.data();
  if (kernel.desc().pack_b != tw::kPackPlain) {
    packed = tw::Buffer::Make(kernel.PackedBytes(b_layout));
    if (Failed(kernel.PackB(weights.data(), b_layout, packed.data(), stream))) return 1;
    b = packed.data();
    b_layout.pack = kernel.desc().pack_b;
  }
  std::printf("weights: %zu bytes, packed as %s: %zu bytes\n", weights.size(),
              tw::PackName(b_layout.pack).c_str(), packed.size());

  // 5. Run. The workspace belongs to the caller: two threads may run one plan with two of them.
  std::vector<float> a(kM * kK), d(kM * kN, -1.0f);
  for (int m = 0; m < kM; ++m) {
    for (int k = 0; k < kK; ++k)
      a[static_cast<std::size_t>(m * kK + k)] = static_cast<float>(Activation(m, k));
  }
  const tw::Buffer scratch = tw::Buffer::Make(plan->partials_bytes() + 64);
  tw::Workspace workspace;
  workspace.partials = scratch.data(), workspace.partials_size = scratch.size();
  tw::GemmArgs args;
  args.a = a.data(), args.b = b, args.d = d.data();
  args.a_layout = {
      .type = tw::DataType::kF32, .order = tw::Order::kRowMajor, .rows = kM, .cols = kK, .ld = kK};
  args.b_layout = b_layout;
  args.d_layout = {
      .type = tw::DataType::kF32, .order = tw::Order::kRowMajor, .rows = kM, .cols = kN, .ld = kN};
  args.c_layout = args.d_layout;
  if (Failed(tw::Run(*plan, args, workspace, stream))) return 1;

  int wrong = 0;
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      int want = 0;
      for (int k = 0; k < kK; ++k) want += Activation(m, k) * Weight(n, k);
      if (d[static_cast<std::size_t>(m * kN + n)] != static_cast<float>(want)) ++wrong;
    }
  }
  std::printf("D[2][5] = %g; %d of %d values differ from the exact sums\n",
              static_cast<double>(d[2 * kN + 5]), wrong, kM * kN);
  return wrong == 0 ? 0 : 1;
}
