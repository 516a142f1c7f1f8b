#include "graph/device/find_chains.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "graph/device/bound_step.h"
#include "graph/liveness.h"
#include "ops/gemm/base/extent.h"
#include "ops/norm/norm.h"
#include "tilewright/cuda/gemm_chain_params.h"

namespace tilewright {
namespace {

using Steps = std::span<const std::unique_ptr<PreparedStep>>;

Rejection No(Reason reason, std::string have, std::string need) {
  return {reason, std::move(have), std::move(need)};
}

class Finder {
 public:
  Finder(const Graph& graph, Steps steps) : graph_(graph), steps_(steps) {}

  FoundChains Find() {
    FoundChains found;
    for (std::size_t at = 0; at < steps_.size(); ++at) {
      if (GemmStep(at) == nullptr) continue;
      ProductChain chain;
      auto next = First(at);
      while (next) {
        chain.products.push_back(*std::move(next));
        at = chain.products.back().step;
        next = Behind(chain);
      }
      found.ends.push_back({chain.products.empty() ? at : at + 1, std::move(next.error())});
      if (chain.products.size() > 1) found.chains.push_back(std::move(chain));
    }
    return found;
  }

 private:
  using Product = tl::expected<ChainedProduct, Rejection>;

  const BoundStep<GemmOp>* GemmStep(std::size_t at) const {
    return at < steps_.size() ? dynamic_cast<const BoundStep<GemmOp>*>(steps_[at].get()) : nullptr;
  }
  const BoundStep<norm::Op>* NormStep(std::size_t at) const {
    return at < steps_.size() ? dynamic_cast<const BoundStep<norm::Op>*>(steps_[at].get())
                              : nullptr;
  }
  const TensorNode& NodeOf(std::size_t step) const { return graph_.node(steps_[step]->node); }
  std::string Name(const TensorNode& node) const {
    return Format("{} '{}'", TensorOpName(node.op), node.name);
  }

  /// The product of a step by itself.
  Product First(std::size_t at) const {
    const BoundStep<GemmOp>& step = *GemmStep(at);
    if (auto no = CheckProduct(step)) return tl::unexpected(*std::move(no));
    return ChainedProduct{at, step.args(), std::nullopt};
  }

  std::optional<Rejection> CheckProduct(const BoundStep<GemmOp>& step) const {
    const GemmArgs& args = step.args();
    const std::string name = Name(graph_.node(step.node));
    for (const auto& [operand, layout] :
         {std::pair{"A", &args.a_layout}, {"C", &args.c_layout}, {"D", &args.d_layout}}) {
      if (operand[0] == 'C' && args.beta == 0) continue;
      if (layout->type == DataType::kBF16) continue;
      return No(Reason::kType, Format("{}: {} of {}", name, operand, DataTypeName(layout->type)),
                "bf16");
    }
    if (args.a_layout.rows > kMostChainRows)
      return No(Reason::kShape, Format("{}: {} rows", name, args.a_layout.rows),
                Format("at most {}", kMostChainRows));
    if (args.b_layout.num != 1 || args.a_layout.idxs != nullptr || args.u != nullptr ||
        args.v != nullptr)
      return No(Reason::kStriding, name + ": of groups, or with scales", "one product");
    if (args.b_layout.pack != kPackPlain)
      return No(Reason::kPack, Format("{}: {}", name, PackName(args.b_layout.pack)), "plain");
    if (!args.constant_b)
      return No(Reason::kPrologue, name + ": weights that may change", "constant weights");
    if (args.alpha != 1 || (args.beta != 0 && args.beta != 1))
      return No(Reason::kScaling, Format("{}: alpha = {}, beta = {}", name, args.alpha, args.beta),
                "alpha = 1, beta = 0 or 1");
    if (step.provenance() == Provenance::kPinned)
      return No(Reason::kProvider, name + ": a kernel that is pinned", "one that is not");
    return std::nullopt;
  }

  /// What follows the last product of `chain`, with which it is one product longer. Gives that last
  /// product the sum of a norm between them.
  Product Behind(ProductChain& chain) const {
    ChainedProduct& last = chain.products.back();
    if (chain.products.size() == cuda::kMostChainProducts)
      return tl::unexpected(No(Reason::kShape, "another product",
                               Format("at most {} of them", cuda::kMostChainProducts)));
    if (GemmStep(last.step + 1) != nullptr) return Direct(last);
    if (NormStep(last.step + 1) != nullptr) return Normed(last);
    return tl::unexpected(No(Reason::kShape,
                             last.step + 1 < steps_.size() ? Name(NodeOf(last.step + 1))
                                                           : std::string("the end of the steps"),
                             "a product of " + Name(NodeOf(last.step))));
  }

  /// A product of the very result of `last`.
  Product Direct(const ChainedProduct& last) const {
    Product next = First(last.step + 1);
    if (!next) return next;
    if (auto no = CheckFollows(last.args, next->args)) return tl::unexpected(*std::move(no));
    return next;
  }

  /// A product of the norm of that result, or of its sum with a residual.
  Product Normed(ChainedProduct& last) const {
    const std::size_t at = last.step + 1;
    if (GemmStep(at + 1) == nullptr)
      return tl::unexpected(No(Reason::kShape, "no product behind " + Name(NodeOf(at)), "one"));
    Product next = First(at + 1);
    if (!next) return next;
    norm::Args args = NormStep(at)->args();
    if (args.residual.data == last.args.d) std::swap(args.in, args.residual);
    const TensorNode& node = NodeOf(at);
    if (auto no = CheckNorm(args, last.args, next->args, node))
      return tl::unexpected(*std::move(no));
    GemmArgs& of_norm = next->args;
    of_norm.prologue = Prologue::kRmsNorm;
    of_norm.norm = args.weight.data;
    of_norm.type_norm = args.weight.dtype;
    of_norm.epsilon = args.epsilon;
    of_norm.a = last.args.d;
    of_norm.a_layout.ld = last.args.d_layout.ld;
    std::optional<GemmArgs> added;
    if (args.residual.data != nullptr) {
      if (auto no = CheckUnread(last.step, at)) return tl::unexpected(*std::move(no));
      added = last.args;
      added->beta = 1;
      added->c = args.residual.data;
      added->c_layout.ld = args.residual.stride[1];
      added->d = args.sum.data;
      added->d_layout.ld = args.sum.stride[1];
      of_norm.a = added->d;
      of_norm.a_layout.ld = added->d_layout.ld;
    }
    if (auto no = CheckUnread(at, at + 1)) return tl::unexpected(*std::move(no));
    if (auto no = CheckFollows(added.value_or(last.args), of_norm))
      return tl::unexpected(*std::move(no));
    last.added = added;
    return next;
  }

  /// Whether a norm is of what `last` leaves, alone or with a residual, and `next` of the norm.
  std::optional<Rejection> CheckNorm(const norm::Args& args, const GemmArgs& last,
                                     const GemmArgs& next, const TensorNode& node) const {
    const auto lines = [](const TensorView& view, const void* data, const MatrixLayout& layout) {
      return view.data == data && view.shape[0] == layout.cols && view.shape[1] == layout.rows &&
             view.shape[2] * view.shape[3] == 1 && view.stride[1] == layout.ld;
    };
    if (!lines(args.in, last.d, last.d_layout) || !lines(args.out, next.a, next.a_layout))
      return No(Reason::kShape, Name(node), "the norm of one product's rows for the next one");
    if (next.prologue != Prologue::kNone)
      return No(Reason::kPrologue, Name(node), "one norm between two products");
    const NodeId weight = node.inputs[node.op == TensorOp::kAddRmsNorm ? 2 : 1];
    if (args.weight.dtype != DataType::kF32 || graph_.node(weight).leaf != LeafKind::kWeight)
      return No(Reason::kType,
                Format("{}: weights of {}", Name(node), DataTypeName(args.weight.dtype)),
                "constant ones of f32");
    if (args.residual.data == nullptr) return std::nullopt;
    if (last.beta != 0 || last.epilogue != Epilogue::kNone)
      return No(Reason::kEpilogue, Name(node) + " with a residual",
                "a product that nothing else is done to");
    const bool of_rows = args.residual.shape == args.in.shape && args.sum.shape == args.in.shape;
    if (!of_rows || args.residual.dtype != DataType::kBF16 || args.sum.dtype != DataType::kBF16)
      return No(Reason::kType, Format("{}: sums of {}", Name(node), DataTypeName(args.sum.dtype)),
                "rows of bf16");
    return std::nullopt;
  }

  /// Whether the result of step `of` is read once by step `by` and by nothing else.
  std::optional<Rejection> CheckUnread(std::size_t of, std::size_t by) const {
    const TensorNode& made = NodeOf(of);
    const auto refuse = [&](std::string by_whom) {
      return No(Reason::kShape, Format("{}, which {}", Name(made), std::move(by_whom)),
                "a result that only the next step reads");
    };
    if (made.alias_of != kNoNode) return refuse("has no memory of its own");
    for (const TensorNode& node : graph_.nodes()) {
      if (node.id != made.id && node.op == TensorOp::kNone) continue;
      if (node.keep && StorageOf(graph_, node.id) == made.id) return refuse("is kept");
      if (!Computes(node.op)) continue;
      const auto reads = std::ranges::count_if(node.inputs, [&](NodeId input) {
        return input != kNoNode && StorageOf(graph_, input) == made.id;
      });
      const bool is_next = node.id == NodeOf(by).id;
      if (reads > (is_next ? 1 : 0))
        return refuse(Format("{} reads {}", Name(node), is_next ? "twice" : "too"));
    }
    return std::nullopt;
  }

  /// Whether `next` can be behind `last` in a chain, with what is written when.
  static std::optional<Rejection> CheckFollows(const GemmArgs& last, const GemmArgs& next) {
    const bool of_it = next.a == last.d && next.a_layout.ld == last.d_layout.ld &&
                       next.a_layout.rows == last.d_layout.rows &&
                       next.a_layout.cols == last.d_layout.cols;
    if (!of_it) return No(Reason::kShape, "a product of something else", "of the one in front");
    if (next.b_layout.type != last.b_layout.type)
      return No(Reason::kType,
                Format("weights of {} behind {}", DataTypeName(next.b_layout.type),
                       DataTypeName(last.b_layout.type)),
                "one type");
    for (const GemmArgs* args : {&last, &next}) {
      const Extent y = ExtentOf(args->d, args->d_layout);
      if (Overlap(y, ExtentOf(args->a, args->a_layout)))
        return No(Reason::kStriding, "a result in the memory of the activations", "its own");
      if (args->beta == 0) continue;
      const bool in_place = args->c == args->d && args->c_layout.ld == args->d_layout.ld;
      if (!in_place && Overlap(y, ExtentOf(args->c, args->c_layout)))
        return No(Reason::kStriding, "a result across the memory of the residual", "its own");
    }
    return std::nullopt;
  }

  const Graph& graph_;
  Steps steps_;
};

}  // namespace

std::vector<GemmArgs> ProductChain::Args(std::size_t count) const {
  std::vector<GemmArgs> args;
  for (std::size_t i = 0; i < count; ++i) {
    const ChainedProduct& product = products[i];
    args.push_back(i + 1 < count ? product.added.value_or(product.args) : product.args);
  }
  return args;
}

FoundChains FindChains(const Graph& graph, Steps steps) { return Finder(graph, steps).Find(); }

}  // namespace tilewright
