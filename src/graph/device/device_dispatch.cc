#include "tilewright/device_dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/log.h"
#include "core/text.h"
#include "engine/bind_next.h"
#include "engine/op_traits.h"
#include "graph/device/bound_step.h"
#include "graph/device/chain_step.h"
#include "graph/device/find_chains.h"
#include "graph/node_view.h"
#include "ops/gemm/base/alignment.h"
#include "ops/gemm/base/gemm_op.h"

namespace tilewright {
namespace {

/// Batch sizes that the layout of a weight is chosen for: a prompt of 512 tokens, then 128 tokens
/// one by one; a few rows at once must work too.
constexpr std::array<BatchWeight, 3> kLayoutBatches = {{{1, 128.0}, {8, 1.0}, {512, 1.0}}};

/// Positions for which tables are prepared (rotations); a longer sequence computes the rest as it
/// goes.
constexpr std::int64_t kTablePositions = 8192;

/// Tensors of a graph whose memory is not bound yet have no data, which the operations reject.
/// Gives them an address, which is never read when only the support of a node is asked for.
void PretendMemory(NodeView& node) {
  alignas(64) static std::byte nowhere;  // as aligned as every tensor of an arena
  for (NodeView::Input& input : node.inputs) {
    if (input.present && input.view.data == nullptr) input.view.data = &nowhere;
  }
  if (node.out.data == nullptr) node.out.data = &nowhere;
}

/// WeightPacker has a Plan of its own.
template <class Op>
using PlanOf = Plan<Op>;

/// What a dispatch keeps for one operation: every problem is decided once, then found by its value.
/// That no kernel can run it is kept too, since a fusion asks again in every layer.
template <class Op>
struct Slot {
  std::map<typename Op::Desc, Plan<Op>> plans;
  std::map<typename Op::Desc, Error> refused;
  PreparedOf<Op> prepared;
};

template <class List>
struct SlotsOf;
template <class... Ops>
struct SlotsOf<OperationList<Ops...>> {
  std::tuple<Slot<Ops>...> slots;
  template <class Op>
  Slot<Op>& of() {
    return std::get<Slot<Op>>(slots);
  }
};

}  // namespace

struct DeviceDispatch::Impl {
  Impl(const Kernels& all, Device& on, const DispatchOptions& opts)
      : kernels(all),
        device(on),
        options(opts),
        stream(on.default_stream()),
        scratch(on),
        barriers(on) {}

  const Kernels& kernels;
  Device& device;
  DispatchOptions options;
  Stream stream;
  SlotsOf<AllOperations> slots;
  std::map<GemmDesc, PackChoice> layouts;  ///< of the weights of a product; layers share them
  std::vector<GemmDesc> gemm_order;
  BindFailures failures;
  bool refused_arguments = false;  ///< BindNode has put a launch into `failures`
  Arena scratch, barriers;
  Workspace workspace;
  Epoch decisions;

  CallTerms Terms() const {
    return {.activations = options.activations, .guarantee = options.guarantee};
  }

  /// The problem of a call. Kernels for GPUs read wide where the problem promises that they may;
  /// those for CPUs do not ask, and what they do is kept under problems that promise nothing.
  template <class Op>
  Result<typename Op::Desc> Pose(const typename Op::Args& args) const {
    Result<typename Op::Desc> desc = DescOf(args, Terms());
    if constexpr (std::is_same_v<Op, GemmOp>) {
      if (desc && device.spec().kind == DeviceKind::kCuda) PromiseAlignment(args, *desc);
    }
    return desc;
  }

  Status Reserve(const WorkspaceSize& size) {
    if (size.partials > scratch.size()) {
      if (Status status = scratch.Reserve(size.partials); !status) return status;
      workspace.partials = scratch.data(), workspace.partials_size = scratch.size();
    }
    if (size.barriers > barriers.size()) {
      if (Status status = barriers.Reserve(size.barriers); !status) return status;
      workspace.barriers = barriers.data(), workspace.barriers_size = barriers.size();
      return device.Fill(barriers.data(), 0, barriers.size(), stream);
    }
    return {};
  }

  template <class Op>
  Result<PlanOf<Op>> Decide(const typename Op::Desc& desc) {
    Result<Checked<Op>> checked = Validate(desc);
    if (!checked) return Fail(checked.error());
    const BindTerms<Op> terms{options.feasible, options.tuned.of<Op>(), options.pins,
                              options.policy};
    return BindNext(*checked, kernels.of<Op>(), device, terms, failures,
                    [&](const Choice<Op>& choice) -> Status {
                      // Only products have records enough to insist on.
                      if (!std::is_same_v<Op, GemmOp> || !options.strict ||
                          choice.provenance() <= Provenance::kInterpolated)
                        return {};
                      return Fail(
                          ErrorCode::kNotFound,
                          fmt::format("strict mode: no record answers for {} (best guess {})",
                                      KeyOf(desc), choice.kernel().name()));
                    });
  }

  /// The plan of the best kernel whose workspace there is memory for, after the one of `largest`
  /// was refused with `error`. Later problems are decided within that memory too.
  template <class Op>
  Result<PlanOf<Op>> DecideWithLess(const typename Op::Desc& desc, const PlanOf<Op>& largest,
                                    Error error) {
    const std::string first(largest.kernel().name());
    const std::size_t needed = largest.workspace().partials;
    error.message = fmt::format("the workspace of {} for {} needs {}: {}", first, KeyOf(desc),
                                HumanBytes(needed), error.message);
    if (!MayTryNext({}, largest.provenance(), device)) return Fail(error);
    std::size_t limit = needed;
    while (error.code == ErrorCode::kOutOfMemory && limit > 0) {
      options.feasible.partials_bytes = std::min(options.feasible.partials_bytes, limit - 1);
      Result<PlanOf<Op>> plan = Decide<Op>(desc);
      if (!plan) break;
      if (Reserve(plan->workspace())) {
        LogWarning(fmt::format("{}; {} is used instead, and no kernel that needs as much",
                               error.message, plan->kernel().name()));
        return plan;
      }
      limit = plan->workspace().partials;
    }
    return Fail(error);
  }

  template <class Op>
  Result<const PlanOf<Op>*> PlanFor(const typename Op::Desc& desc) {
    auto& [plans, refused, prepared] = slots.of<Op>();
    if (auto it = plans.find(desc); it != plans.end()) return &it->second;
    if (auto it = refused.find(desc); it != refused.end()) return Fail(it->second);
    Result<PlanOf<Op>> plan = Decide<Op>(desc);
    if (!plan) {
      if (plan.error().code == ErrorCode::kUnsupported) refused.emplace(desc, plan.error());
      return Fail(plan.error());
    }
    if (Status status = Reserve(plan->workspace()); !status) {
      plan = DecideWithLess<Op>(desc, *plan, status.error());
      if (!plan) return Fail(plan.error());
    }
    if constexpr (std::is_same_v<Op, GemmOp>) gemm_order.push_back(desc);
    return &plans.emplace(desc, std::move(*plan)).first->second;
  }

  Result<const PackChoice*> LayoutFor(const GemmDesc& weights) {
    if (auto it = layouts.find(weights); it != layouts.end()) return &it->second;
    std::array<BatchWeight, 3> batches = kLayoutBatches;
    // Of a grouped product the rows of all groups count, and `weights` is that of one token.
    for (BatchWeight& batch : batches) batch.batch *= weights.m;
    Result<PackChoice> choice = ChoosePack(weights, batches, kernels.gemm(), device.spec(),
                                           options.feasible, options.tuned.of<GemmOp>());
    if (!choice) return Fail(choice.error());
    return &layouts.emplace(weights, std::move(*choice)).first->second;
  }

  /// The arguments of a node and the plan for them.
  template <class Op>
  struct Resolved {
    typename Op::Args args;
    typename Op::Desc desc{};
    const PlanOf<Op>* plan = nullptr;
  };
  template <class Op>
  Result<Resolved<Op>> Resolve(const NodeView& node) {
    Resolved<Op> resolved{.args = Op::ArgsOf(node)};
    Result<typename Op::Desc> desc = Pose<Op>(resolved.args);
    if (!desc) return Fail(desc.error());
    Result<const PlanOf<Op>*> plan = PlanFor<Op>(*desc);
    if (!plan) return Fail(plan.error());
    resolved.desc = *desc;
    resolved.plan = *plan;
    return resolved;
  }

  /// f.template operator()<Op>() for the operation that implements `op`; kUnsupported if none does.
  template <class F>
  static Status Visit(TensorOp op, F&& f) {
    Status status =
        Fail(ErrorCode::kUnsupported, fmt::format("no operation serves {}", TensorOpName(op)));
    ForEachOperation([&]<class Op>() {
      for (const NodeRule& rule : Op::NodeRules()) {
        if (rule.op == op) status = f.template operator()<Op>();
      }
    });
    return status;
  }

  /// Decides for a node as its call will pose the problem.
  Status Answer(NodeView node) {
    PretendMemory(node);
    return Visit(node.op, [&]<class Op>() -> Status {
      if (auto resolved = Resolve<Op>(node); !resolved) return Fail(resolved.error());
      return {};
    });
  }

  /// A call with views of its own: decided the first time, checked each time, launched.
  Status Call(const TensorNode& node, std::span<const TensorView> inputs, const TensorView& out) {
    const NodeView view = ViewOf(node, inputs, out);
    return Visit(node.op, [&]<class Op>() -> Status {
      Result<Resolved<Op>> resolved = Resolve<Op>(view);
      if (!resolved) return Fail(resolved.error());
      if (Status status = slots.of<Op>().prepared.Prepare(resolved->args, device, stream, 0);
          !status)
        return status;
      return tilewright::Run(*resolved->plan, resolved->args, workspace, stream);
    });
  }

  Status BindNode(const Graph& graph, const TensorNode& node, std::int64_t positions,
                  std::vector<std::unique_ptr<PreparedStep>>& steps) {
    const NodeView view = ViewOf(graph, node);
    return Visit(node.op, [&]<class Op>() -> Status {
      Result<Resolved<Op>> resolved = Resolve<Op>(view);
      if (!resolved) return Fail(resolved.error());
      if (Status status =
              slots.of<Op>().prepared.Prepare(resolved->args, device, stream, positions);
          !status) {
        return status;
      }
      auto step =
          std::make_unique<BoundStep<Op>>(node.id, *resolved->plan, resolved->args, workspace);
      if (Status status = step->Ready(); !status) {
        DropPlan<Op>(*resolved, status.error());
        return status;
      }
      steps.push_back(std::move(step));
      return {};
    });
  }

  /// After the arguments were refused, as by an encoder of tensor maps: the kernel cannot be
  /// prepared for this problem, which is decided anew when it is next asked for.
  template <class Op>
  void DropPlan(const Resolved<Op>& resolved, const Error& error) {
    const PlanOf<Op>& plan = *resolved.plan;
    if (!MayTryNext(error, plan.provenance(), device)) return;
    Unbindable failure{std::string(plan.kernel().name()), {}};
    failure.reason = BindReason(error, failure.kernel);
    if (failures.Add(BindKey<Op>(resolved.desc), failure))
      LogWarning(
          fmt::format("{}: {}; another kernel is tried", Op::kName, UnbindableText({failure})));
    slots.of<Op>().plans.erase(resolved.desc);
    if constexpr (std::is_same_v<Op, GemmOp>) std::erase(gemm_order, resolved.desc);
    refused_arguments = true;
  }

  Result<BoundSteps> BindAll(const Graph& graph, std::int64_t positions) {
    BoundSteps bound;
    for (const TensorNode& node : graph.nodes()) {
      if (!Computes(node.op)) continue;
      if (Status status = BindNode(graph, node, positions, bound.steps); !status)
        return AtNode(node, status.error());
    }
    bound.epochs = {&decisions, &scratch.epoch(), &barriers.epoch()};
    return bound;
  }
};

namespace {

/// Positions that the caches of a graph hold: how far tables are worth preparing.
std::int64_t PositionsOf(const Graph& graph) {
  std::int64_t positions = 0;
  for (const TensorNode& node : graph.nodes()) {
    if (node.op != TensorOp::kAttention && node.op != TensorOp::kRopeAttention) continue;
    const NodeView view = ViewOf(graph, node);
    const attention::Args args = attention::Op::ArgsOf(view);
    const bool paged = args.pages.data != nullptr;
    positions = std::max(positions, args.k_cache.shape[2] * (paged ? args.pages.shape[0] : 1));
  }
  return std::min(positions, kTablePositions);
}

}  // namespace

DeviceDispatch::DeviceDispatch(const Kernels& kernels, Device& device,
                               const DispatchOptions& options)
    : impl_(std::make_unique<Impl>(kernels, device, options)) {}
DeviceDispatch::~DeviceDispatch() = default;

std::string_view DeviceDispatch::name() const {
  return impl_->device.spec().kind == DeviceKind::kCpu ? "cpu" : "cuda";
}
Device* DeviceDispatch::device() const { return &impl_->device; }

std::optional<Rejection> DeviceDispatch::Supports(const Graph& graph,
                                                  const TensorNode& node) const {
  if (!Computes(node.op)) return std::nullopt;
  const std::size_t known = impl_->failures.known();
  const Status status = impl_->Answer(ViewOf(graph, node));
  if (status) return std::nullopt;
  // Whoever asks, as a fusion does, goes without: nobody else would say that it is for this reason.
  if (impl_->failures.known() > known) LogWarning(status.error().message);
  return Rejection{Reason::kType, status.error().message, ""};
}

Status DeviceDispatch::Prepare(const Graph& graph) {
  for (const TensorNode& node : graph.nodes()) {
    if (!Computes(node.op)) continue;
    if (Status status = impl_->Answer(ViewOf(graph, node)); !status)
      return AtNode(node, status.error());
  }
  return {};
}

Result<BoundSteps> DeviceDispatch::BindSteps(const Graph& graph) {
  const std::int64_t positions = PositionsOf(graph);
  for (;;) {
    // Every plan first: what they reserve moves the workspace, and steps take its address.
    if (Status status = Prepare(graph); !status) return Fail(status.error());
    impl_->refused_arguments = false;
    Result<BoundSteps> bound = impl_->BindAll(graph, positions);
    // Each round takes a kernel out of the race, so the last one is not far.
    if (bound || !impl_->refused_arguments) return bound;
  }
}

Result<BoundSteps> DeviceDispatch::BindChained(const Graph& graph) {
  const auto refuse = [](const std::string& reason) {
    return Fail(ErrorCode::kUnsupported, "no chain of products: " + reason);
  };
  Device& device = impl_->device;
  if (impl_->options.store == nullptr || device.spec().kind != DeviceKind::kCuda)
    return refuse(fmt::format("{} compiles no kernel for one", device.spec().ClassId()));
  if (impl_->options.guarantee != Guarantee::kFastest)
    return refuse("the sums of its kernels are not those of separate ones, which were promised");
  if (impl_->options.strict) return refuse("in strict mode records decide, which have none");
  Result<BoundSteps> bound = BindSteps(graph);
  if (!bound) return bound;
  const FoundChains found = FindChains(graph, bound->steps);
  std::vector<ChosenChain> chosen;
  std::optional<Rejection> why;
  for (const ProductChain& chain : found.chains) {
    auto one = ChooseChain(chain, device.spec());
    if (one) {
      chosen.push_back(*one);
    } else if (!why) {
      why = std::move(one.error());
    }
  }
  if (chosen.empty()) {
    if (!why && !found.ends.empty()) why = found.ends.front().reason;
    return refuse(why ? why->ToString() : "there is no product");
  }
  if (Status made = BindChains(chosen, *impl_->options.store, device, bound->steps); !made)
    return Fail(made.error());
  return bound;
}

void DeviceDispatch::Forget() {
  ForEachOperation([&]<class Op>() {
    impl_->slots.of<Op>().plans.clear();
    impl_->slots.of<Op>().refused.clear();
  });
  impl_->layouts.clear();
  impl_->gemm_order.clear();
  impl_->decisions.Advance();
}

Status DeviceDispatch::DispatchMulMat(const TensorNode& node, const TensorView& x,
                                      const TensorView& w, const TensorView& out, std::int64_t,
                                      std::int64_t, std::int64_t) {
  const TensorView inputs[] = {x, w};
  return impl_->Call(node, inputs, out);
}
Status DeviceDispatch::DispatchRmsNorm(const TensorNode& node, const TensorView& in,
                                       const TensorView& weight, const TensorView& out,
                                       std::int64_t, std::int64_t, float) {
  const TensorView inputs[] = {in, weight};
  return impl_->Call(node, inputs, out);
}
Status DeviceDispatch::DispatchAdd(const TensorNode& node, const TensorView& a, const TensorView& b,
                                   const TensorView& out, std::int64_t) {
  const TensorView inputs[] = {a, b};
  return impl_->Call(node, inputs, out);
}
Status DeviceDispatch::DispatchMul(const TensorNode& node, const TensorView& a, const TensorView& b,
                                   const TensorView& out, std::int64_t) {
  const TensorView inputs[] = {a, b};
  return impl_->Call(node, inputs, out);
}
Status DeviceDispatch::DispatchSilu(const TensorNode& node, const TensorView& in,
                                    const TensorView& out, std::int64_t) {
  const TensorView inputs[] = {in};
  return impl_->Call(node, inputs, out);
}
Status DeviceDispatch::DispatchRope(const TensorNode& node, const TensorView& qk,
                                    const TensorView& positions, const TensorView& factors,
                                    const TensorView& out, std::int64_t, std::int64_t) {
  const TensorView inputs[] = {qk, positions, factors};
  return impl_->Call(node, inputs, out);
}
Status DeviceDispatch::DispatchAttention(const TensorNode& node, const TensorView& q,
                                         const TensorView& k_cache, const TensorView& v_cache,
                                         const TensorView& positions, const TensorView& slots,
                                         const TensorView& out, std::int64_t, std::int64_t,
                                         std::int64_t) {
  const TensorView inputs[] = {q, k_cache, v_cache, positions, slots};
  return impl_->Call(node, inputs, out);
}
Status DeviceDispatch::DispatchCopy(const TensorNode& node, const TensorView& src,
                                    const TensorView& dst) {
  const TensorView inputs[] = {src};
  return impl_->Call(node, inputs, dst);
}
Status DeviceDispatch::DispatchExtra(const TensorNode& node, std::span<const TensorView> inputs,
                                     const TensorView& out) {
  return impl_->Call(node, inputs, out);
}

namespace {

/// The product of a token with the weight, whose layout is open: one row, or one for each matrix that
/// the token uses.
GemmArgs ProductWith(const WeightSpec& spec) {
  const auto rows = static_cast<std::int32_t>(spec.used), num = static_cast<std::int32_t>(spec.num);
  GemmArgs args;
  args.a_layout = {.type = DataType::kF32,
                   .order = Order::kRowMajor,
                   .rows = rows,
                   .cols = static_cast<std::int32_t>(spec.k),
                   .ld = spec.k,
                   .num = num};
  args.b_layout = {.type = spec.type,
                   .order = Order::kColMajor,
                   .rows = static_cast<std::int32_t>(spec.k),
                   .cols = static_cast<std::int32_t>(spec.n),
                   .ld = spec.k,
                   .pack = kPackAny,
                   .num = num};
  args.d_layout = {.type = DataType::kF32,
                   .order = Order::kRowMajor,
                   .rows = rows,
                   .cols = static_cast<std::int32_t>(spec.n),
                   .ld = spec.n,
                   .num = num};
  args.c_layout = args.d_layout;
  if (spec.op == TensorOp::kMulMatAdd) args.beta = 1.0f;
  if (spec.op == TensorOp::kMulMatSwiGlu || spec.op == TensorOp::kMulMatExpertsSwiGlu) {
    args.epilogue = Epilogue::kGatedSilu;
    args.d_layout.cols /= 2;
  }
  return args;
}

}  // namespace

Result<WeightPacker::Plan> DeviceDispatch::PlanWeight(const WeightSpec& spec) {
  GemmArgs args = ProductWith(spec);
  Result<GemmDesc> desc = impl_->Pose<GemmOp>(args);
  if (!desc) return Fail(desc.error());
  Result<const PackChoice*> choice = impl_->LayoutFor(*desc);
  if (!choice && choice.error().code == ErrorCode::kUnsupported && spec.op != TensorOp::kMulMat &&
      spec.op != TensorOp::kMulMatExperts) {
    // No kernel computes all of it at once, so passes will not be fused there either.
    WeightSpec product = spec;
    product.op = spec.num > 1 ? TensorOp::kMulMatExperts : TensorOp::kMulMat;
    args = ProductWith(product);
    desc = impl_->Pose<GemmOp>(args);
    if (!desc) return Fail(desc.error());
    choice = impl_->LayoutFor(*desc);
  }
  if (!choice && choice.error().code == ErrorCode::kUnsupported && spec.num > 1 &&
      impl_->device.spec().kind == DeviceKind::kCuda) {
    // The reasons of hundreds of kernels would all say the same.
    return Fail(ErrorCode::kUnsupported,
                fmt::format("there is no kernel for products with {} experts of {} on {}; the CPU "
                            "has one",
                            spec.num, DataTypeName(spec.type), impl_->device.spec().ClassId()));
  }
  if (!choice) return Fail(choice.error());
  WeightPacker::Plan plan;
  plan.pack = (*choice)->pack;
  plan.packer = (*choice)->packer;
  MatrixLayout plain = args.b_layout;
  plain.pack = kPackPlain;
  if (plan.pack != kPackPlain) plan.bytes = plan.packer->PackedBytes(plain);
  return plan;
}

Status DeviceDispatch::PackWeight(const WeightSpec& spec, const WeightPacker::Plan& plan,
                                  const void* plain, void* packed) {
  const MatrixLayout layout{.type = spec.type,
                            .order = Order::kColMajor,
                            .rows = static_cast<std::int32_t>(spec.k),
                            .cols = static_cast<std::int32_t>(spec.n),
                            .ld = spec.k,
                            .num = static_cast<std::int32_t>(spec.num)};
  return plan.packer->PackB(plain, layout, packed, Stream{impl_->stream.executor});
}

bool DeviceDispatch::PosesProblem(const Graph& graph, const TensorNode& node, std::string_view op,
                                  void* desc) const {
  NodeView view = ViewOf(graph, node);
  PretendMemory(view);
  const Status posed = Impl::Visit(node.op, [&]<class Op>() -> Status {
    if (Op::kName != op) return Fail(ErrorCode::kNotFound, "of another operation");
    Result<typename Op::Desc> problem = impl_->Pose<Op>(Op::ArgsOf(view));
    if (!problem) return Fail(problem.error());
    *static_cast<typename Op::Desc*>(desc) = *problem;
    return {};
  });
  return posed.has_value();
}

std::vector<DecidedGemm> DeviceDispatch::Decisions() const {
  std::vector<DecidedGemm> decided;
  for (const GemmDesc& desc : impl_->gemm_order) {
    const GemmPlan& plan = impl_->slots.of<GemmOp>().plans.at(desc);
    decided.push_back({plan, plan.why()});
  }
  return decided;
}

}  // namespace tilewright
