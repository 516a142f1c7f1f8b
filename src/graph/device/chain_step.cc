#include "graph/device/chain_step.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/text.h"
#include "device/ready_launch.h"
#include "engine/compiled/loaded_kernel.h"
#include "ops/gemm/cuda/gemm_chain/chain_launch.h"
#include "ops/gemm/cuda/gemm_chain/families.h"

namespace tilewright {
namespace {

/// A wait of a CTA for others that takes longer is an error: far longer than a pass, and than other
/// work on the GPU takes turns.
constexpr std::uint64_t kWaitNs = 2'000'000'000;

/// Memory of the chains of a graph, which run one after the other, in which CTAs hand results to each other.
/// Not the dispatch's: a launch that is given up does not leave it as it has to be.
struct ChainMemory {
  DeviceMemory barriers, partials;
  DeviceMemory alarm;  ///< a word, in the host's memory

  Workspace View() const {
    Workspace workspace;
    workspace.barriers = barriers.data(), workspace.barriers_size = barriers.size();
    workspace.partials = partials.data(), workspace.partials_size = partials.size();
    return workspace;
  }
};

Result<std::shared_ptr<const ChainMemory>> MakeMemory(std::span<const ChosenChain> chains,
                                                      Device& device) {
  WorkspaceSize most;
  for (const ChosenChain& chain : chains) {
    const WorkspaceSize size =
        GemmChainWorkspace(chain.spec, chain.chain->Args(chain.count), device.spec());
    most.barriers = std::max(most.barriers, size.barriers);
    most.partials = std::max(most.partials, size.partials);
  }
  Result<DeviceMemory> barriers = device.Allocate(most.barriers);
  if (!barriers) return Fail(barriers.error());
  Result<DeviceMemory> partials = device.Allocate(most.partials);
  if (!partials) return Fail(partials.error());
  Result<DeviceMemory> alarm = device.AllocateStaging(sizeof(unsigned int));
  if (!alarm) return Fail(alarm.error());
  *alarm->as<unsigned int>() = 0;
  const Stream stream = device.default_stream();
  Status zeroed = device.Fill(barriers->data(), 0, most.barriers, stream);
  if (zeroed) zeroed = device.Synchronize(stream);
  if (!zeroed) return Fail(zeroed.error());
  return std::make_shared<const ChainMemory>(
      ChainMemory{*std::move(barriers), *std::move(partials), *std::move(alarm)});
}

/// Several products in one launch.
class ChainStep final : public PreparedStep {
 public:
  ChainStep(std::shared_ptr<const ChainMemory> memory, std::unique_ptr<const ReadyLaunch> ready)
      : memory_(std::move(memory)), ready_(std::move(ready)) {}

  Status Run(Stream stream) const override { return ready_->Launch(stream); }
  bool only_submits() const override { return true; }
  const ReadyLaunch* ready() const override { return ready_.get(); }
  Status Outcome() const override {
    const volatile unsigned int* const alarm = memory_->alarm.as<unsigned int>();
    if (*alarm == 0) return {};
    return Fail(ErrorCode::kUnavailable,
                Format("{}: a CTA waited more than {} s for another one and gave up, so what this "
                       "pass has computed is not right",
                       kernel, kWaitNs / 1'000'000'000));
  }

 private:
  std::shared_ptr<const ChainMemory> memory_;
  std::unique_ptr<const ReadyLaunch> ready_;
};

/// Binds the chains of one graph, with what they share.
class Binder {
 public:
  Binder(ArtifactStore& store, Device& device, std::shared_ptr<const ChainMemory> memory)
      : store_(store), device_(device), memory_(std::move(memory)) {}

  Result<std::unique_ptr<PreparedStep>> Bind(const ChosenChain& chosen) {
    const std::string name = SpecName(chosen.spec);
    const auto explain = [name](const Error& error) {
      return Error{error.code, name + ": " + error.message};
    };
    Result<const LoadedKernel*> kernel = KernelOf(chosen.spec);
    if (!kernel) return tl::unexpected(explain(kernel.error()));
    const cuda::LaunchResult launch = GemmChainLaunch(
        chosen.spec, chosen.chain->Args(chosen.count), device_.spec(), memory_->View(),
        {.word = memory_->alarm.as<unsigned int>(), .wait_ns = kWaitNs});
    if (!launch)
      return tl::unexpected(explain({ErrorCode::kUnsupported, launch.error().ToString()}));
    Result<std::unique_ptr<ReadyLaunch>> ready = (*kernel)->Ready(*launch, explain);
    if (!ready) return Fail(ready.error());
    auto step = std::make_unique<ChainStep>(memory_, *std::move(ready));
    step->kernel = name;
    step->spec = Format("products={} ctas={}", chosen.count, launch->grid[0]);
    step->why = Format("a chain of {} products in one launch", chosen.count);
    return std::unique_ptr<PreparedStep>(std::move(step));
  }

 private:
  Result<const LoadedKernel*> KernelOf(const KernelSpec& spec) {
    if (const auto known = kernels_.find(spec); known != kernels_.end()) return &known->second;
    Result<LoadedKernel> loaded = LoadedKernel::Load(store_, spec, device_);
    if (!loaded) return Fail(loaded.error());
    return &kernels_.emplace(spec, *std::move(loaded)).first->second;
  }

  ArtifactStore& store_;
  Device& device_;
  std::shared_ptr<const ChainMemory> memory_;
  std::map<KernelSpec, LoadedKernel> kernels_;
};

}  // namespace

tl::expected<ChosenChain, Rejection> ChooseChain(const ProductChain& chain,
                                                 const DeviceSpec& device) {
  const GemmArgs& first = chain.products.front().args;
  const std::vector<KernelSpec> specs = GemmChainSpecs(
      first.b_layout.type, NativeArch(device.compute_capability), first.a_layout.rows);
  std::optional<Rejection> why;
  for (std::size_t count = chain.products.size(); count > 1; --count) {
    const std::vector<GemmArgs> args = chain.Args(count);
    for (const KernelSpec& spec : specs) {
      std::optional<Rejection> no = CheckChain(spec, args, device);
      if (!no) return ChosenChain{&chain, count, spec};
      if (!why) why = std::move(no);
    }
  }
  if (why) return tl::unexpected(*std::move(why));
  return tl::unexpected(Rejection{
      Reason::kType,
      Format("{} rows with weights of {}", first.a_layout.rows, DataTypeName(first.b_layout.type)),
      "types and rows of a kernel for chains"});
}

Status BindChains(std::span<const ChosenChain> chains, ArtifactStore& store, Device& device,
                  std::vector<std::unique_ptr<PreparedStep>>& steps) {
  Result<std::shared_ptr<const ChainMemory>> memory = MakeMemory(chains, device);
  if (!memory) return Fail(memory.error());
  Binder binder(store, device, *std::move(memory));
  std::vector<std::unique_ptr<PreparedStep>> launches;
  for (const ChosenChain& chain : chains) {
    Result<std::unique_ptr<PreparedStep>> made = binder.Bind(chain);
    if (!made) return Fail(made.error());
    launches.push_back(*std::move(made));
  }
  for (std::size_t i = 0; i < chains.size(); ++i) {
    const std::size_t first = chains[i].first_step(), last = chains[i].last_step();
    PreparedStep& launch = *launches[i];
    launch.node = steps[last]->node;
    for (std::size_t at = first; at < last; ++at) launch.also.push_back(steps[at]->node);
    for (std::size_t at = first; at < last; ++at) steps[at].reset();
    steps[last] = std::move(launches[i]);
  }
  std::erase(steps, nullptr);
  return {};
}

}  // namespace tilewright
