// What a prepared product costs over the kernel itself: the same call of a kernel that computes
// nothing, through PreparedGraph::Run and directly, in paired bursts.
//
//   prepared_bench [ROUNDS]
// prints one JSON object: prepared_ns and direct_ns (medians over rounds), over_ns (median, lowest
// and highest of the paired differences), allocations of all prepared calls.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "core/allocation_probe.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

constexpr int kBurst = 200;

/// Takes f32 products and leaves the result as it is: only the call costs.
class EmptyKernel final : public Kernel {
 public:
  EmptyKernel() : Kernel(Info(), Takes()) {}
  double EstimateUs(const GemmDesc&, const LaunchSpec&, const DeviceSpec&) const override {
    return 0.001;
  }
  Status Launch(const GemmArgs&, const LaunchSpec&, Workspace&, Stream) override {
    launches_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  long launches() const { return launches_.load(); }

 private:
  static KernelInfo Info() {
    KernelInfo info;
    info.name = "bench.empty";
    info.fingerprint = "1";
    info.provider = Provider::kUser;
    return info;
  }
  static KernelDesc Takes() {
    KernelDesc takes;
    takes.type_a = takes.type_b = takes.type_c = Bit(DataType::kF32);
    return takes;
  }
  std::atomic<long> launches_{0};
};

struct Product {
  std::vector<float> x = std::vector<float>(64), w = std::vector<float>(64 * 16),
                     d = std::vector<float>(16);
};

Graph OneProduct(Product& memory) {
  Graph graph;
  const auto leaf = [&](const char* name, LeafKind kind, std::vector<float>& data, std::int64_t k,
                        std::int64_t rows) {
    return graph.AddLeaf(name, kind, Contiguous(data.data(), DataType::kF32, {k, rows, 1, 1}));
  };
  const NodeId x = leaf("x", LeafKind::kInput, memory.x, 64, 1);
  const NodeId w = leaf("w", LeafKind::kWeight, memory.w, 64, 16);
  const NodeId out =
      graph.AddOp(TensorOp::kMulMat, "product", {x, w}, DataType::kF32, {16, 1, 1, 1});
  graph.node(out).keep = true;
  return graph;
}

template <class Call>
double BurstNs(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kBurst; ++i) call();
  const std::chrono::duration<double, std::nano> span = std::chrono::steady_clock::now() - start;
  return span.count() / kBurst;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Report(const Error& error) {
  fmt::print(stderr, "prepared_bench: {}\n", error.message);
  return 1;
}

int Main(int argc, char** argv) {
  const auto rounds = static_cast<std::size_t>(argc > 1 ? std::max(1, std::atoi(argv[1])) : 2001);
  auto owned = std::make_unique<EmptyKernel>();
  EmptyKernel& kernel = *owned;
  Kernels kernels;
  if (Status added = kernels.gemm().Add(std::move(owned)); !added) return Report(added.error());
  Device& device = HostDevice();
  DeviceDispatch dispatch(kernels, device, {});
  Arena arena(device);
  Product memory;
  auto prepared = PrepareGraph(OneProduct(memory), dispatch, arena);
  if (!prepared) return Report(prepared.error());

  auto args = DenseGemm(memory.x, DataType::kF32, std::as_bytes(std::span(memory.w)), memory.d,
                        {1, 16, 64});
  if (!args) return Report(args.error());
  Kernel* direct = kernels.gemm().kernels()[0];
  LaunchSpec spec;
  spec.kernel = direct;
  Workspace workspace;
  const Stream stream = device.default_stream();

  std::vector<double> through(rounds), straight(rounds), over(rounds);
  bool failed = false;
  const long before = AllocationProbe::Count();
  for (std::size_t i = 0; i < rounds; ++i) {
    through[i] = BurstNs([&] { failed |= !(*prepared)->Run(stream); });
    straight[i] = BurstNs([&] { failed |= !direct->Launch(*args, spec, workspace, stream); });
    over[i] = through[i] - straight[i];
  }
  const long allocations = AllocationProbe::Count() - before;
  if (failed || kernel.launches() != 2 * kBurst * static_cast<long>(rounds)) {
    fmt::print(stderr, "prepared_bench: a launch failed or is missing\n");
    return 1;
  }
  const auto [low, high] = std::minmax_element(over.begin(), over.end());
  fmt::print(
      R"({{"rounds":{},"prepared_ns":{:.1f},"direct_ns":{:.1f},"over_ns":{{"median":{:.1f},"min":{:.1f},"max":{:.1f}}},"allocations":{}}})"
      "\n",
      rounds, Median(through), Median(straight), Median(over), *low, *high, allocations);
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
