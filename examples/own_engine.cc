// Two ways to put an engine of one's own together with this library, on y = x + W2 * silu(W1 *
// norm(x)):
//
//   1. Your graph, our kernels: call KernelDispatch's functions with views of your own memory.
//   2. Our graph, your kernels: implement KernelDispatch; what you leave out answers "unsupported".

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tilewright/tilewright.h"

namespace tw = tilewright;

namespace {

constexpr std::int64_t kHidden = 64, kFfn = 160, kRows = 5;

std::vector<float> Numbers(std::int64_t count, int seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(static_cast<float>(i * seed % 1009)) * 0.1f);
  return values;
}

struct Weights {
  std::vector<float> norm = std::vector<float>(kHidden, 1.5f);
  std::vector<float> up = Numbers(kHidden * kFfn, 7), down = Numbers(kFfn * kHidden, 11);  // [n][k]
};

// Dimension 0 is the innermost one: a matrix of rows x cols has shape {cols, rows}.
tw::TensorView View(std::vector<float>& values, std::int64_t cols, std::int64_t rows = 1) {
  return tw::Contiguous(values.data(), tw::DataType::kF32, {cols, rows, 1, 1});
}

// 1. Your graph, our kernels. The engine below has no graph at all, only a sequence of calls.
tw::Status RunOwnEngine(tw::KernelDispatch& dispatch, Weights& w, std::vector<float>& x,
                        std::vector<float>& y) {
  std::vector<float> normed(x.size()), wide(kRows * kFfn);
  const tw::TensorView rows = View(x, kHidden, kRows), in = View(normed, kHidden, kRows),
                       middle = View(wide, kFfn, kRows), out = View(y, kHidden, kRows);
  // A node carries what belongs to the operation: its kind, a name for messages, how its weight is
  // packed.
  const auto node = [](tw::TensorOp op, const char* name) {
    tw::TensorNode node;
    node.op = op;
    node.name = name;
    return node;
  };
  if (auto s = dispatch.DispatchRmsNorm(node(tw::TensorOp::kRmsNorm, "norm"), rows,
                                        View(w.norm, kHidden), in, kHidden, kRows, 1e-5f);
      !s) {
    return s;
  }
  if (auto s = dispatch.DispatchMulMat(node(tw::TensorOp::kMulMat, "up"), in,
                                       View(w.up, kHidden, kFfn), middle, kRows, kFfn, kHidden);
      !s) {
    return s;
  }
  if (auto s =
          dispatch.DispatchSilu(node(tw::TensorOp::kSilu, "act"), middle, middle, kRows * kFfn);
      !s)
    return s;
  if (auto s = dispatch.DispatchMulMat(node(tw::TensorOp::kMulMat, "down"), middle,
                                       View(w.down, kFfn, kHidden), out, kRows, kHidden, kFfn);
      !s) {
    return s;
  }
  return dispatch.DispatchAdd(node(tw::TensorOp::kAdd, "residual"), out, rows, out,
                              kRows * kHidden);
}

// 2. Our graph, your kernels: the plainest loops that can be.
class OwnDispatch final : public tw::KernelDispatch {
 public:
  std::string_view name() const override { return "own"; }

  std::optional<tw::Rejection> Supports(const tw::Graph& graph,
                                        const tw::TensorNode& node) const override {
    using tw::TensorOp;
    if (node.op == TensorOp::kNone) return std::nullopt;
    if (node.op != TensorOp::kMulMat && node.op != TensorOp::kRmsNorm &&
        node.op != TensorOp::kSilu && node.op != TensorOp::kAdd) {
      return tw::Rejection{tw::Reason::kType, std::string(tw::TensorOpName(node.op)),
                           "mul_mat, rms_norm, silu or add"};
    }
    for (const tw::NodeId input : node.inputs) {
      if (graph.node(input).out.dtype != tw::DataType::kF32)
        return tw::Rejection{tw::Reason::kType, graph.node(input).name, "f32 tensors"};
    }
    return std::nullopt;
  }

  tw::Status DispatchMulMat(const tw::TensorNode&, const tw::TensorView& x, const tw::TensorView& w,
                            const tw::TensorView& out, std::int64_t m, std::int64_t n,
                            std::int64_t k) override {
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t col = 0; col < n; ++col) {
        float sum = 0;
        for (std::int64_t i = 0; i < k; ++i)
          sum += x.as<float>()[row * x.stride[1] + i] * w.as<float>()[col * w.stride[1] + i];
        out.as<float>()[row * out.stride[1] + col] = sum;
      }
    }
    return {};
  }
  tw::Status DispatchRmsNorm(const tw::TensorNode&, const tw::TensorView& in,
                             const tw::TensorView& weight, const tw::TensorView& out,
                             std::int64_t hidden, std::int64_t m, float epsilon) override {
    for (std::int64_t row = 0; row < m; ++row) {
      const float* from = in.as<float>() + row * in.stride[1];
      float squares = 0;
      for (std::int64_t i = 0; i < hidden; ++i) squares += from[i] * from[i];
      const float scale = 1 / std::sqrt(squares / static_cast<float>(hidden) + epsilon);
      for (std::int64_t i = 0; i < hidden; ++i)
        out.as<float>()[row * out.stride[1] + i] = from[i] * scale * weight.as<float>()[i];
    }
    return {};
  }
  tw::Status DispatchSilu(const tw::TensorNode&, const tw::TensorView& in,
                          const tw::TensorView& out, std::int64_t n) override {
    for (std::int64_t i = 0; i < n; ++i)
      out.as<float>()[i] = in.as<float>()[i] / (1 + std::exp(-in.as<float>()[i]));
    return {};
  }
  tw::Status DispatchAdd(const tw::TensorNode&, const tw::TensorView& a, const tw::TensorView& b,
                         const tw::TensorView& out, std::int64_t n) override {
    for (std::int64_t i = 0; i < n; ++i) out.as<float>()[i] = a.as<float>()[i] + b.as<float>()[i];
    return {};
  }
};

struct SmallGraph {
  tw::Graph graph;
  tw::NodeId result;
  tw::Buffer arena;

  SmallGraph(Weights& w, std::vector<float>& x) {
    using tw::DataType, tw::LeafKind, tw::TensorOp;
    const auto in = graph.AddLeaf("x", LeafKind::kInput, View(x, kHidden, kRows));
    const auto norm = graph.AddLeaf("norm.weight", LeafKind::kWeight, View(w.norm, kHidden));
    const auto up = graph.AddLeaf("up.weight", LeafKind::kWeight, View(w.up, kHidden, kFfn));
    const auto down = graph.AddLeaf("down.weight", LeafKind::kWeight, View(w.down, kFfn, kHidden));
    const auto normed =
        graph.AddOp(TensorOp::kRmsNorm, "norm", {in, norm}, DataType::kF32, {kHidden, kRows, 1, 1});
    const auto wide =
        graph.AddOp(TensorOp::kMulMat, "up", {normed, up}, DataType::kF32, {kFfn, kRows, 1, 1});
    const auto active =
        graph.AddOp(TensorOp::kSilu, "act", {wide}, DataType::kF32, {kFfn, kRows, 1, 1});
    const auto narrow = graph.AddOp(TensorOp::kMulMat, "down", {active, down}, DataType::kF32,
                                    {kHidden, kRows, 1, 1});
    result = graph.AddOp(TensorOp::kAdd, "residual", {narrow, in}, DataType::kF32,
                         {kHidden, kRows, 1, 1});
    graph.node(result).keep = true;  // we read it after the run
  }
  // Checks the graph, then gives every intermediate its place: those whose lives do not overlap
  // share memory.
  tw::Status Bind() {
    if (tw::Status sound = tw::VerifyGraph(graph); !sound) return sound;
    const tw::MemoryPlan plan = tw::PlanMemory(graph);
    std::printf("activations take %zu bytes, %zu without sharing\n", plan.bytes,
                plan.unshared_bytes);
    arena = tw::Buffer::Make(plan.bytes);
    tw::BindMemory(graph, plan, arena.data());
    return {};
  }
};

double Distance(const float* a, const float* b, std::int64_t count) {
  double most = 0;
  for (std::int64_t i = 0; i < count; ++i)
    most = std::fmax(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

int Report(const tw::Error& error) {
  std::printf("error: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main() {
  auto context = tw::Context::Create({});
  if (!context) return Report(context.error());
  const auto ours = (*context)->MakeDispatch(tw::Precision::kF32);
  Weights w;
  std::vector<float> x = Numbers(kRows * kHidden, 13), y(x.size());

  if (auto s = RunOwnEngine(*ours, w, x, y); !s) return Report(s.error());
  std::printf("1. own engine, kernels of %s:\n", std::string(ours->name()).c_str());
  for (const tw::DecidedGemm& decided : ours->Decisions()) {
    const tw::GemmDesc& problem = decided.plan.problem();
    std::printf("   m=%d n=%d k=%d: %s, by %s\n", problem.m, problem.n, problem.k,
                std::string(decided.plan.spec().kernel->name()).c_str(), decided.why.c_str());
  }

  SmallGraph small(w, x);
  if (auto s = small.Bind(); !s) return Report(s.error());
  OwnDispatch own;
  const auto calls = tw::ExecuteGraph(small.graph, own);
  if (!calls) return Report(calls.error());
  const auto* result = small.graph.node(small.result).out.as<float>();
  const double distance = Distance(result, y.data(), kRows * kHidden);
  std::printf("2. our graph, kernels of %s: %lld calls, largest difference %.1e\n",
              std::string(own.name()).c_str(), static_cast<long long>(*calls), distance);

  // An operation that nobody implemented fails by name; it never passes silently.
  tw::Graph more = small.graph;
  more.AddOp(tw::TensorOp::kMul, "gate", {small.result, small.result}, tw::DataType::kF32,
             {kHidden, kRows, 1, 1});
  const tw::Status refused = own.Prepare(more);
  std::printf("   %s\n", refused ? "prepared?" : refused.error().message.c_str());
  return distance < 1e-5 && !refused ? 0 : 1;
}
