#include "tilewright/cpu_dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/hash.h"
#include "graph/cpu/kernels.h"
#include "graph/cpu/op_slot.h"
#include "graph/gemm_args.h"
#include "graph/node_views.h"

namespace tilewright {
namespace {

/// Batch sizes that the layout of a weight is chosen for: a prompt of 512 tokens, then 128 tokens
/// one by one; a few rows at once must work too.
constexpr std::array<BatchWeight, 3> kLayoutBatches = {{{1, 128.0}, {8, 1.0}, {512, 1.0}}};

/// Positions whose rotations are kept; a longer sequence computes the rest as it goes.
constexpr std::int64_t kRopeTablePositions = 8192;

struct DescHash {
  std::size_t operator()(const GemmDesc& desc) const {
    return static_cast<std::size_t>(Hash64(&desc, sizeof desc));
  }
};

/// The rotations of one model. Found by the address of its frequency factors, which another model
/// may have after it.
struct Rotations {
  const float* factors = nullptr;
  std::vector<float> values;  ///< what was there when the table was made
  RopeTable table;
};

bool IsMatMul(TensorOp op) {
  return op == TensorOp::kMulMat || op == TensorOp::kMulMatAdd || op == TensorOp::kMulMatSwiGlu;
}

}  // namespace

struct CpuDispatch::Impl {
  Impl(const CpuKernels& all, DeviceSpec spec, CpuDispatchOptions opts)
      : kernels(all),
        device(std::move(spec)),
        options(opts),
        stream{opts.executor},
        allocator(opts.allocator != nullptr ? opts.allocator : &DefaultAllocator()),
        norm(all.norm, device, opts.feasible.providers),
        rope(all.rope, device, opts.feasible.providers),
        elementwise(all.elementwise, device, opts.feasible.providers),
        copy(all.copy, device, opts.feasible.providers),
        kv_scatter(all.kv_scatter, device, opts.feasible.providers),
        embedding(all.embedding, device, opts.feasible.providers),
        attention(all.attention, device, opts.feasible.providers) {}

  const CpuKernels& kernels;
  DeviceSpec device;
  CpuDispatchOptions options;
  Stream stream;
  Allocator* allocator;
  OpSlot<NormDesc, NormArgs> norm;
  OpSlot<RopeDesc, RopeArgs> rope;
  OpSlot<ElementwiseDesc, ElementwiseArgs> elementwise;
  OpSlot<CopyDesc, CopyArgs> copy;
  OpSlot<KvScatterDesc, KvScatterArgs> kv_scatter;
  OpSlot<EmbeddingDesc, EmbeddingArgs> embedding;
  OpSlot<AttentionDesc, AttentionArgs> attention;

  std::unordered_map<GemmDesc, DecidedGemm, DescHash> plans;
  std::vector<GemmDesc> plan_order;
  Buffer partials, attention_scratch;
  std::list<Rotations> rotations;

  int threads() const { return stream.exec().workers(); }

  GemmDesc Problem(TensorOp op, const TensorView& x, const TensorView& w, Pack pack,
                   const TensorView& out) const {
    GemmDesc desc;
    desc.m = static_cast<std::int32_t>(x.shape[1]);
    desc.n = static_cast<std::int32_t>(w.shape[1]);
    desc.k = static_cast<std::int32_t>(x.shape[0]);
    desc.type_a = x.dtype;
    desc.type_b = w.dtype;
    desc.type_c = out.dtype;
    desc.pack_b = pack;
    desc.threads = static_cast<std::uint16_t>(threads());
    desc.precision = options.activations;
    desc.guarantee = options.guarantee;
    desc.scaling = op == TensorOp::kMulMatAdd ? Scaling::kOneOne : Scaling::kOneZero;
    desc.epilogue = op == TensorOp::kMulMatSwiGlu ? Epilogue::kGatedSilu : Epilogue::kNone;
    return desc;
  }

  Result<GemmChoice> Decide(const GemmDesc& desc) const {
    Result<CheckedGemm> checked = Validate(desc);
    if (!checked) return Fail(checked.error());
    const GemmCandidates candidates = Feasible(*checked, kernels.gemm, device, options.feasible);
    return Choose(candidates, options.records, options.pins, options.policy);
  }

  /// The whole answer to a problem; keeps nothing.
  Result<DecidedGemm> Plan(const GemmDesc& desc) const {
    Result<GemmChoice> choice = Decide(desc);
    if (!choice) return Fail(choice.error());
    if (options.strict && choice->provenance() > Provenance::kInterpolated) {
      return Fail(ErrorCode::kNotFound,
                  fmt::format("strict mode: no record answers for {} (best guess {})", KeyOf(desc),
                              choice->kernel().name()));
    }
    Result<GemmPlan> plan = Bind(*choice);
    if (!plan) return Fail(plan.error());
    return DecidedGemm{*plan, choice->why()};
  }

  Result<const GemmPlan*> PlanFor(const GemmDesc& desc) {
    if (auto it = plans.find(desc); it != plans.end()) return &it->second.plan;
    Result<DecidedGemm> decided = Plan(desc);
    if (!decided) return Fail(decided.error());
    const std::size_t bytes = decided->plan.partials_bytes();
    if (bytes > partials.size()) {
      partials = Buffer::Make(bytes, *allocator);
      if (!partials)
        return Fail(ErrorCode::kOutOfMemory,
                    fmt::format("no memory for a workspace of {} bytes", bytes));
    }
    auto [it, inserted] = plans.emplace(desc, std::move(*decided));
    plan_order.push_back(desc);
    return &it->second.plan;
  }

  Status Multiply(const TensorNode& node, const TensorView& x, const TensorView& w,
                  const TensorView* residual, const TensorView& out) {
    const GemmDesc desc = Problem(node.op, x, w, node.pack, out);
    Result<const GemmPlan*> plan = PlanFor(desc);
    if (!plan) return Fail(plan.error());
    const GemmArgs args = GemmArgsOf(node, x, w, residual, out);
    Workspace workspace;
    workspace.partials = partials.data();
    workspace.partials_size = partials.size();
    return Run(**plan, args, workspace, stream);
  }

  /// nullptr when no table could be made: the kernel then works out (and reports) everything
  /// itself.
  const RopeTable* TableFor(const RopeParams& params, const float* factors) const {
    for (const Rotations& known : rotations) {
      if (known.factors == factors && known.table.params() == params) return &known.table;
    }
    return nullptr;
  }

  Status PrepareTable(const RopeParams& params, const float* factors, std::int64_t positions) {
    std::vector<float> values;
    if (factors != nullptr) values.assign(factors, factors + params.dims / 2);
    auto same = [&](const Rotations& known) {
      return known.factors == factors && known.table.params() == params;
    };
    const auto known = std::find_if(rotations.begin(), rotations.end(), same);
    if (known != rotations.end() && known->values == values &&
        known->table.positions() >= positions)
      return {};
    Result<RopeTable> table = RopeTable::Make(params, factors, positions);
    if (!table) return Fail(table.error());
    if (known != rotations.end()) rotations.erase(known);
    rotations.push_back({factors, std::move(values), std::move(*table)});
    return {};
  }

  Status PrepareRope(const Graph& graph) {
    std::int64_t context = 0;
    for (const TensorNode& node : graph.nodes()) {
      if (node.op == TensorOp::kAttention)
        context = std::max(context, graph.node(node.inputs[1]).out.shape[2]);
    }
    for (const TensorNode& node : graph.nodes()) {
      if (node.op != TensorOp::kRope) continue;
      const bool has_factors = node.inputs.size() > 2 && node.inputs[2] != kNoNode;
      const float* factors = has_factors ? graph.node(node.inputs[2]).out.as<float>() : nullptr;
      if (Status status =
              PrepareTable(node.params.rope, factors, std::min(context, kRopeTablePositions));
          !status) {
        return Fail(status.error().code,
                    fmt::format("node {} '{}': {}", node.id, node.name, status.error().message));
      }
    }
    return {};
  }

  Status ReserveAttention(const AttentionDesc& desc, std::int64_t context) {
    const std::size_t bytes = AttentionWorkspaceBytes(desc, context);
    if (bytes <= attention_scratch.size()) return {};
    attention_scratch = Buffer::Make(bytes, *allocator);
    if (attention_scratch) return {};
    return Fail(ErrorCode::kOutOfMemory,
                fmt::format("no memory for {} bytes of attention scratch", bytes));
  }

  static ElementwiseArgs ElementwiseOf(ElementwiseOp op, const TensorView& a, const TensorView& b,
                                       const TensorView& out) {
    ElementwiseArgs args;
    args.op = op;
    args.a = a;
    args.b = b;
    args.out = out;
    return args;
  }
  Status Elementwise(ElementwiseOp op, const TensorView& a, const TensorView& b,
                     const TensorView& out) {
    return elementwise.Launch(ElementwiseOf(op, a, b, out), stream);
  }

  /// Whether a node is answered only, or its kernel and workspace are kept for the run too.
  enum class Keep { kNo, kYes };

  /// Decides the kernel of a node as its Dispatch call will pose the problem.
  Status AnswerNode(const Graph& graph, const TensorNode& node, Keep keep);
  Status AnswerAttention(const AttentionArgs& args, Keep keep);
};

Status CpuDispatch::Impl::AnswerAttention(const AttentionArgs& args, Keep keep) {
  if (keep == Keep::kNo) return attention.Check(args, threads());
  if (Status status = attention.Prepare(args, threads()); !status) return status;
  return ReserveAttention(*DescOf(args, threads()), args.k_cache.shape[2]);
}

Status CpuDispatch::Impl::AnswerNode(const Graph& graph, const TensorNode& node, Keep keep) {
  const auto [in, out] = ViewsForPlanning(graph, node);
  const auto answer = [&](auto& slot, const auto& args) {
    return keep == Keep::kYes ? slot.Prepare(args, threads()) : slot.Check(args, threads());
  };
  switch (node.op) {
    case TensorOp::kNone:
    case TensorOp::kView:
      return {};
    case TensorOp::kMulMat:
    case TensorOp::kMulMatAdd:
    case TensorOp::kMulMatSwiGlu: {
      const GemmDesc desc = Problem(node.op, in[0], in[1], node.pack, out);
      if (keep == Keep::kYes) {
        if (auto plan = PlanFor(desc); !plan) return Fail(plan.error());
      } else if (plans.find(desc) == plans.end()) {
        if (auto plan = Plan(desc); !plan) return Fail(plan.error());
      }
      return {};
    }
    case TensorOp::kAttention:
      return AnswerAttention(AttentionArgs{in[0], in[1], in[2], in[3], in[4], out,
                                           node.params.attention_scale, nullptr, 0},
                             keep);
    case TensorOp::kRmsNorm:
      return answer(norm, NormArgs{in[0], in[1], out, node.params.epsilon});
    case TensorOp::kAdd:
      return answer(elementwise, ElementwiseOf(ElementwiseOp::kAdd, in[0], in[1], out));
    case TensorOp::kMul:
      return answer(elementwise, ElementwiseOf(ElementwiseOp::kMul, in[0], in[1], out));
    case TensorOp::kSilu:
      return answer(elementwise, ElementwiseOf(ElementwiseOp::kSilu, in[0], TensorView{}, out));
    case TensorOp::kSwiGlu:
      return answer(elementwise, ElementwiseOf(ElementwiseOp::kSwiGlu, in[0], in[1], out));
    case TensorOp::kRope:
      return answer(rope, RopeArgs{in[0], in[1], in[2], out, node.params.rope, nullptr});
    case TensorOp::kCopy:
      return answer(copy, CopyArgs{in[0], out});
    case TensorOp::kKvScatter:
      return answer(kv_scatter, KvScatterArgs{in[0], out, in[2], in[3]});
    case TensorOp::kEmbedding:
      return answer(embedding, EmbeddingArgs{in[0], in[1], out});
  }
  return Fail(ErrorCode::kInternal, "unknown operation");
}

CpuDispatch::CpuDispatch(const CpuKernels& kernels, DeviceSpec device, CpuDispatchOptions options)
    : impl_(std::make_unique<Impl>(kernels, std::move(device), options)) {}
CpuDispatch::~CpuDispatch() = default;

std::optional<Rejection> CpuDispatch::Supports(const Graph& graph, const TensorNode& node) const {
  const Status status = impl_->AnswerNode(graph, node, Impl::Keep::kNo);
  if (status) return std::nullopt;
  const Reason reason =
      status.error().code == ErrorCode::kInvalidArgument ? Reason::kShape : Reason::kType;
  return Rejection{reason, status.error().message, ""};
}

Status CpuDispatch::Prepare(const Graph& graph) {
  for (const TensorNode& node : graph.nodes()) {
    auto fail = [&](ErrorCode code, std::string_view why) {
      return Fail(code, fmt::format("node {} '{}' ({}): {}", node.id, node.name,
                                    TensorOpName(node.op), why));
    };
    if (Status status = impl_->AnswerNode(graph, node, Impl::Keep::kYes); !status)
      return fail(status.error().code, status.error().message);
  }
  return impl_->PrepareRope(graph);
}

Status CpuDispatch::DispatchMulMat(const TensorNode& node, const TensorView& x, const TensorView& w,
                                   const TensorView& out, std::int64_t, std::int64_t,
                                   std::int64_t) {
  return impl_->Multiply(node, x, w, nullptr, out);
}

Status CpuDispatch::DispatchRmsNorm(const TensorNode&, const TensorView& in,
                                    const TensorView& weight, const TensorView& out, std::int64_t,
                                    std::int64_t, float epsilon) {
  return impl_->norm.Launch(NormArgs{in, weight, out, epsilon}, impl_->stream);
}

Status CpuDispatch::DispatchAdd(const TensorNode&, const TensorView& a, const TensorView& b,
                                const TensorView& out, std::int64_t) {
  return impl_->Elementwise(ElementwiseOp::kAdd, a, b, out);
}
Status CpuDispatch::DispatchMul(const TensorNode&, const TensorView& a, const TensorView& b,
                                const TensorView& out, std::int64_t) {
  return impl_->Elementwise(ElementwiseOp::kMul, a, b, out);
}
Status CpuDispatch::DispatchSilu(const TensorNode&, const TensorView& in, const TensorView& out,
                                 std::int64_t) {
  return impl_->Elementwise(ElementwiseOp::kSilu, in, TensorView{}, out);
}

Status CpuDispatch::DispatchRope(const TensorNode& node, const TensorView& qk,
                                 const TensorView& positions, const TensorView& factors,
                                 const TensorView& out, std::int64_t, std::int64_t) {
  RopeArgs args{qk, positions, factors, out, node.params.rope, nullptr};
  args.table = impl_->TableFor(node.params.rope, factors.as<float>());
  return impl_->rope.Launch(args, impl_->stream);
}

Status CpuDispatch::DispatchAttention(const TensorNode& node, const TensorView& q,
                                      const TensorView& k_cache, const TensorView& v_cache,
                                      const TensorView& positions, const TensorView& slots,
                                      const TensorView& out, std::int64_t, std::int64_t,
                                      std::int64_t) {
  AttentionArgs args{q,       k_cache, v_cache, positions, slots, out, node.params.attention_scale,
                     nullptr, 0};
  const Result<AttentionDesc> desc = DescOf(args, impl_->threads());
  if (!desc) return Fail(desc.error());
  if (Status status = impl_->ReserveAttention(*desc, k_cache.shape[2]); !status) return status;
  args.workspace = impl_->attention_scratch.data();
  args.workspace_bytes = impl_->attention_scratch.size();
  Result<const AttentionKernel*> kernel = impl_->attention.KernelFor(*desc);
  if (!kernel) return Fail(kernel.error());
  return (*kernel)->Launch(args, impl_->stream);
}

Status CpuDispatch::DispatchCopy(const TensorNode&, const TensorView& src, const TensorView& dst) {
  return impl_->copy.Launch(CopyArgs{src, dst}, impl_->stream);
}

Status CpuDispatch::DispatchExtra(const TensorNode& node, std::span<const TensorView> inputs,
                                  const TensorView& out) {
  switch (node.op) {
    case TensorOp::kMulMatAdd:
      return impl_->Multiply(node, inputs[0], inputs[1], &inputs[2], out);
    case TensorOp::kMulMatSwiGlu:
      return impl_->Multiply(node, inputs[0], inputs[1], nullptr, out);
    case TensorOp::kSwiGlu:
      return impl_->Elementwise(ElementwiseOp::kSwiGlu, inputs[0], inputs[1], out);
    case TensorOp::kKvScatter:
      return impl_->kv_scatter.Launch(KvScatterArgs{inputs[0], out, inputs[2], inputs[3]},
                                      impl_->stream);
    case TensorOp::kEmbedding:
      return impl_->embedding.Launch(EmbeddingArgs{inputs[0], inputs[1], out}, impl_->stream);
    default:
      return KernelDispatch::DispatchExtra(node, inputs, out);
  }
}

Result<WeightPacker::Plan> CpuDispatch::PlanWeight(const WeightSpec& spec) {
  TensorView x, w, out;
  x.dtype = out.dtype = DataType::kF32;
  x.shape = {spec.k, 1, 1, 1};
  w.dtype = spec.type;
  w.shape = {spec.k, spec.n, 1, 1};
  const GemmDesc desc = impl_->Problem(spec.op, x, w, kPackAny, out);
  Result<PackChoice> choice = ChoosePack(desc, kLayoutBatches, impl_->kernels.gemm, impl_->device,
                                         impl_->options.feasible, impl_->options.records);
  if (!choice) return Fail(choice.error());
  Plan plan;
  plan.pack = choice->pack;
  plan.packer = choice->packer;
  if (plan.pack != kPackPlain) {
    plan.bytes = plan.packer->PackedBytes({.type = spec.type,
                                           .order = Order::kColMajor,
                                           .rows = desc.k,
                                           .cols = desc.n,
                                           .ld = desc.k});
  }
  return plan;
}

Status CpuDispatch::PackWeight(const WeightSpec& spec, const Plan& plan, const void* plain,
                               void* packed) {
  const MatrixLayout layout{.type = spec.type,
                            .order = Order::kColMajor,
                            .rows = static_cast<std::int32_t>(spec.k),
                            .cols = static_cast<std::int32_t>(spec.n),
                            .ld = spec.k};
  return plan.packer->PackB(plain, layout, packed, impl_->stream);
}

GemmDesc CpuDispatch::ProblemOf(const Graph& graph, const TensorNode& node) const {
  return impl_->Problem(node.op, graph.node(node.inputs[0]).out, graph.node(node.inputs[1]).out,
                        node.pack, node.out);
}

std::vector<GemmDesc> CpuDispatch::ProblemsOf(const Graph& graph) const {
  std::vector<GemmDesc> problems;
  for (const TensorNode& node : graph.nodes()) {
    if (!IsMatMul(node.op)) continue;
    const GemmDesc desc = ProblemOf(graph, node);
    if (std::find(problems.begin(), problems.end(), desc) == problems.end())
      problems.push_back(desc);
  }
  return problems;
}

std::vector<DecidedGemm> CpuDispatch::Decisions() const {
  std::vector<DecidedGemm> decided;
  for (const GemmDesc& desc : impl_->plan_order) decided.push_back(impl_->plans.at(desc));
  return decided;
}

}  // namespace tilewright
