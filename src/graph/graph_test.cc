#include "tilewright/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <sstream>
#include <vector>

#include "graph/liveness.h"
#include "tilewright/kernel_dispatch.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

float g_memory[4096];

TensorView View(std::array<std::int64_t, 4> shape, DataType type = DataType::kF32) {
  return Contiguous(g_memory, type, shape);
}

/// x -> norm -> mul_mat -> silu -> add residual: small, but with every kind of edge.
struct SmallGraph {
  Graph graph;
  NodeId x, gamma, w, positions, normed, product, activated, sum;
  SmallGraph() {
    x = graph.AddLeaf("x", LeafKind::kInput, View({32, 3, 1, 1}));
    gamma = graph.AddLeaf("gamma", LeafKind::kWeight, View({32, 1, 1, 1}));
    w = graph.AddLeaf("w", LeafKind::kWeight, View({32, 32, 1, 1}, DataType::kQ4_1));
    positions = graph.AddLeaf("positions", LeafKind::kInput, View({3, 1, 1, 1}, DataType::kI32));
    normed = graph.AddOp(TensorOp::kRmsNorm, "norm", {x, gamma}, DataType::kF32, {32, 3, 1, 1});
    product = graph.AddOp(TensorOp::kMulMat, "ffn", {normed, w}, DataType::kF32, {32, 3, 1, 1});
    activated = graph.AddOp(TensorOp::kSilu, "act", {product}, DataType::kF32, {32, 3, 1, 1});
    sum = graph.AddOp(TensorOp::kAdd, "sum", {activated, x}, DataType::kF32, {32, 3, 1, 1});
    graph.node(sum).keep = true;
  }
};

std::string FaultOf(const Graph& graph) {
  Status status = VerifyGraph(graph);
  return status ? "" : status.error().message;
}

TEST(VerifyGraph, accepts_a_sound_graph) { EXPECT_EQ(FaultOf(SmallGraph().graph), ""); }

TEST(VerifyGraph, names_the_node_and_the_field) {
  struct Case {
    std::function<void(SmallGraph&)> damage;
    const char* expected;
  };
  const std::vector<Case> cases = {
      {[](SmallGraph& g) { g.graph.node(g.product).inputs[1] = 99; },
       "node 5 'ffn' (mul_mat): inputs[1] = 99, there is no such node"},
      {[](SmallGraph& g) { g.graph.node(g.normed).inputs[0] = g.product; },
       "node 4 'norm' (rms_norm): inputs[0] = node 5"},
      {[](SmallGraph& g) { g.graph.node(g.w).out.shape[0] = 64; },
       "inputs[1].shape[0] = 64, expected k = 32"},
      {[](SmallGraph& g) { g.graph.node(g.w).out.shape[1] = 31; },
       "inputs[1].shape[1] = 31, expected n = 32"},
      {[](SmallGraph& g) { g.graph.node(g.w).out.shape[0] = 33; },
       "out.shape[0] = 33, must be a multiple of 32 for q4_1"},
      {[](SmallGraph& g) { g.graph.node(g.product).out.shape[1] = 2; },
       "out.shape[1] = 2, expected m = 3"},
      {[](SmallGraph& g) { g.graph.node(g.sum).inputs = {g.activated}; },
       "'sum' (add): 1 inputs, expected 2"},
      {[](SmallGraph& g) { g.graph.node(g.sum).inputs[1] = kNoNode; }, "inputs[1] is absent"},
      {[](SmallGraph& g) { g.graph.node(g.x).out.dtype = DataType::kI32; },
       "inputs[0] is i32, expected a float type"},
      {[](SmallGraph& g) { g.graph.node(g.x).out.data = nullptr; },
       "node 0 'x' (leaf): out.data is null"},
      {[](SmallGraph& g) { g.graph.node(g.x).out.shape[1] = 0; },
       "out.shape[1] = 0, must be positive"},
      {[](SmallGraph& g) { g.graph.node(g.w).pack = 7; }, "pack = 0, but that of inputs[1] is 7"},
      {[](SmallGraph& g) { g.graph.node(g.normed).params.epsilon = -1; },
       "epsilon = -1, must be >= 0"},
      {[](SmallGraph& g) { g.graph.node(g.activated).alias_of = g.normed; },
       "alias_of = 4, which is not an operand"},
      {[](SmallGraph& g) { g.graph.node(g.product).alias_of = g.normed; },
       "mul_mat cannot run in place"},
      {[](SmallGraph& g) { g.graph.node(g.sum).alias_of = g.x; }, "would overwrite the leaf"},
  };
  for (const Case& c : cases) {
    SmallGraph g;
    c.damage(g);
    EXPECT_THAT(FaultOf(g.graph), HasSubstr(c.expected));
  }
}

TEST(VerifyGraph, refuses_a_read_of_what_an_in_place_node_overwrote) {
  SmallGraph g;
  g.graph.node(g.activated).alias_of = g.product;
  EXPECT_EQ(FaultOf(g.graph), "");
  g.graph.AddOp(TensorOp::kAdd, "late", {g.sum, g.product}, DataType::kF32, {32, 3, 1, 1});
  EXPECT_THAT(FaultOf(g.graph),
              HasSubstr("inputs[1] = node 5 'ffn' was overwritten by node 6 'act'"));
}

TEST(VerifyGraph, lets_windows_beside_each_other_change_in_place_and_stops_those_that_meet) {
  Graph graph;
  const NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({32, 3, 1, 1}));
  const NodeId w = graph.AddLeaf("w", LeafKind::kWeight, View({32, 64, 1, 1}));
  const NodeId p = graph.AddLeaf("p", LeafKind::kInput, View({3, 1, 1, 1}, DataType::kI32));
  const NodeId qk = graph.AddOp(TensorOp::kMulMat, "qk", {x, w}, DataType::kF32, {64, 3, 1, 1});
  const NodeId q = graph.AddView("q", qk, 0, {16, 2, 3, 1}, {1, 16, 64, 0});
  const NodeId k = graph.AddView("k", qk, 32, {16, 2, 3, 1}, {1, 16, 64, 0});
  OpParams params;
  params.rope.dims = 16;
  auto rope = [&](const char* name, NodeId source) {
    const NodeId id =
        graph.AddOp(TensorOp::kRope, name, {source, p}, DataType::kF32, {16, 2, 3, 1}, params);
    graph.node(id).alias_of = source;
    graph.node(id).out.stride = graph.node(source).out.stride;
    return id;
  };
  rope("rope_q", q);
  rope("rope_k", k);
  EXPECT_EQ(FaultOf(graph), "");
  const NodeId overlap = graph.AddView("o", qk, 16, {16, 2, 3, 1}, {1, 16, 64, 0});
  rope("rope_o", overlap);
  EXPECT_THAT(FaultOf(graph), HasSubstr("was overwritten by"));
}

TEST(VerifyGraph, refuses_sizes_that_no_memory_holds) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::array<std::int64_t, 4> shapes[] = {
      {32, kMost / 2, 8, 1}, {32, 3, 1, kMost}, {32, kMost / 16, 1, 1}, {32, 1 << 30, 1 << 30, 1}};
  for (const auto& shape : shapes) {
    SmallGraph g;
    g.graph.AddOp(TensorOp::kCopy, "big", {g.sum}, DataType::kF32, shape);
    EXPECT_THAT(FaultOf(g.graph), HasSubstr("node 8 'big' (copy): out.shape = [32, "));
    SmallGraph leaf;
    leaf.graph.node(leaf.x).out.shape = shape;
    EXPECT_THAT(FaultOf(leaf.graph), HasSubstr("node 0 'x' (leaf): out.shape = [32, "));
  }
  SmallGraph g;
  g.graph.node(g.x).out.stride[1] = kMost / 2;
  EXPECT_THAT(FaultOf(g.graph), HasSubstr("out.stride reaches beyond"));
  SmallGraph view;
  view.graph.AddView("v", view.x, kMost, {32, 3, 1, 1}, {1, 32, 0, 0});
  EXPECT_THAT(FaultOf(view.graph), HasSubstr("view_offset = 9223372036854775807"));
}

TEST(VerifyGraph, refuses_results_whose_elements_share_memory_or_leave_their_own) {
  struct Case {
    std::array<std::int64_t, 4> stride;
    const char* expected;
  };
  const Case cases[] = {
      {{1, 16, 96, 96}, "out.stride[1] = 16: elements of the result share memory"},
      {{1, 31, 96, 96}, "out.stride[1] = 31: elements"},
      {{1, 0, 96, 96}, "out.stride[1] = 0: elements"},
      {{0, 32, 96, 96}, "out.stride[0] = 0: elements"},
      {{2, 32, 96, 96}, "out.stride[1] = 32: elements"},
      {{1, -32, 96, 96}, "out.stride[1] = -32, must be >= 0"},
      {{1, 64, 192, 192}, "reaches element 159, but a result of its own has 96 elements"},
  };
  for (const Case& c : cases) {
    SmallGraph g;
    g.graph.node(g.product).out.stride = c.stride;
    EXPECT_THAT(FaultOf(g.graph), HasSubstr(c.expected));
  }
  // Columns outside: every element has its own place, and strides of one step do not matter.
  SmallGraph g;
  g.graph.node(g.product).out.stride = {3, 1, 0, 7};
  EXPECT_EQ(FaultOf(g.graph), "");
  // A cache is written, a broadcast input only read.
  SmallGraph leaf;
  leaf.graph.node(leaf.x).out.stride[1] = 0;
  EXPECT_EQ(FaultOf(leaf.graph), "");
  leaf.graph.node(leaf.x).leaf = LeafKind::kCache;
  EXPECT_THAT(FaultOf(leaf.graph), HasSubstr("node 0 'x' (leaf): out.stride[1] = 0"));
}

TEST(VerifyGraph, refuses_a_view_beyond_its_source) {
  Graph graph;
  const NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({32, 3, 1, 1}));
  graph.AddView("v", x, 1, {32, 3, 1, 1}, {1, 32, 0, 0});
  EXPECT_THAT(FaultOf(graph), HasSubstr("reaches element 96 of its source, whose last is 95"));
}

TEST(PlanMemory, gives_tensors_that_live_together_bytes_apart_and_reuses_the_rest) {
  // A chain of layers: without reuse it grows with the depth.
  Graph graph;
  NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({32, 3, 1, 1}));
  const NodeId w = graph.AddLeaf("w", LeafKind::kWeight, View({32, 32, 1, 1}));
  for (int layer = 0; layer < 20; ++layer) {
    const NodeId y = graph.AddOp(TensorOp::kMulMat, "y", {x, w}, DataType::kF32, {32, 3, 1, 1});
    const NodeId z = graph.AddOp(TensorOp::kSilu, "z", {y}, DataType::kF32, {32, 3, 1, 1});
    x = graph.AddOp(TensorOp::kAdd, "x", {x, z}, DataType::kF32, {32, 3, 1, 1});
  }
  graph.node(x).keep = true;
  ASSERT_EQ(FaultOf(graph), "");
  const MemoryPlan plan = PlanMemory(graph);
  EXPECT_LE(plan.bytes, 4u * 384u);
  EXPECT_EQ(plan.unshared_bytes, 60u * 384u);
  const auto lives = ComputeLiveness(graph);
  for (const TensorNode& a : graph.nodes()) {
    for (const TensorNode& b : graph.nodes()) {
      const auto ia = static_cast<std::size_t>(a.id), ib = static_cast<std::size_t>(b.id);
      if (ia >= ib || plan.offset[ia] < 0 || plan.offset[ib] < 0) continue;
      const bool together = lives[ia].first <= lives[ib].last && lives[ib].first <= lives[ia].last;
      const bool apart =
          plan.offset[ia] + 384 <= plan.offset[ib] || plan.offset[ib] + 384 <= plan.offset[ia];
      EXPECT_TRUE(!together || apart) << a.name << a.id << " and " << b.name << b.id;
    }
  }
}

TEST(PlanMemory, keeps_what_the_caller_reads_afterwards) {
  SmallGraph g;
  g.graph.node(g.normed).keep = true;
  const MemoryPlan plan = PlanMemory(g.graph);
  for (NodeId id : {g.product, g.activated, g.sum}) {
    EXPECT_NE(plan.offset[static_cast<std::size_t>(id)],
              plan.offset[static_cast<std::size_t>(g.normed)]);
  }
}

/// Counts calls; fills outputs with a constant; implements only what SmallGraph needs.
class CountingDispatch : public KernelDispatch {
 public:
  explicit CountingDispatch(float value = 1) : value_(value) {}
  std::string_view name() const override { return "counting"; }
  std::optional<Rejection> Supports(const Graph&, const TensorNode& node) const override {
    for (const TensorOp op : {TensorOp::kNone, TensorOp::kView, TensorOp::kMulMat,
                              TensorOp::kRmsNorm, TensorOp::kAdd, TensorOp::kSilu}) {
      if (node.op == op) return std::nullopt;
    }
    return Rejection{Reason::kType, std::string(TensorOpName(node.op)), "another dispatch"};
  }
  Status DispatchMulMat(const TensorNode& node, const TensorView&, const TensorView&,
                        const TensorView& out, std::int64_t m, std::int64_t n,
                        std::int64_t k) override {
    last = {m, n, k};
    return Fill(node, out);
  }
  Status DispatchRmsNorm(const TensorNode& node, const TensorView&, const TensorView&,
                         const TensorView& out, std::int64_t, std::int64_t, float) override {
    return Fill(node, out);
  }
  Status DispatchAdd(const TensorNode& node, const TensorView&, const TensorView&,
                     const TensorView& out, std::int64_t) override {
    return Fill(node, out);
  }
  Status DispatchSilu(const TensorNode& node, const TensorView&, const TensorView& out,
                      std::int64_t) override {
    return Fill(node, out);
  }
  std::vector<std::string> calls;
  std::array<std::int64_t, 3> last{};

 private:
  Status Fill(const TensorNode& node, const TensorView& out) {
    calls.push_back(node.name);
    for (std::int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = value_;
    return {};
  }
  float value_;
};

TEST(ExecuteGraph, calls_each_operation_once_in_order_and_counts_them) {
  SmallGraph g;
  std::vector<std::byte> arena(PlanMemory(g.graph).bytes);
  BindMemory(g.graph, PlanMemory(g.graph), arena.data());
  CountingDispatch dispatch;
  const Result<std::int64_t> calls = ExecuteGraph(g.graph, dispatch);
  ASSERT_TRUE(calls);
  EXPECT_EQ(*calls, 4);
  EXPECT_THAT(dispatch.calls, ::testing::ElementsAre("norm", "ffn", "act", "sum"));
  EXPECT_THAT(dispatch.last, ::testing::ElementsAre(3, 32, 32));
}

TEST(ExecuteGraph, an_operation_nobody_implements_fails_and_says_so) {
  SmallGraph g;
  OpParams params;
  g.graph.AddOp(TensorOp::kMul, "gate", {g.sum, g.x}, DataType::kF32, {32, 3, 1, 1}, params);
  std::vector<std::byte> arena(PlanMemory(g.graph).bytes);
  BindMemory(g.graph, PlanMemory(g.graph), arena.data());
  CountingDispatch dispatch;
  const Result<std::int64_t> calls = ExecuteGraph(g.graph, dispatch);
  ASSERT_FALSE(calls);
  EXPECT_EQ(calls.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(calls.error().message,
            "node 8 'gate' (mul): the counting dispatch does not implement mul");
  EXPECT_TRUE(dispatch.Supports(g.graph, g.graph.node(8)).has_value());
}

TEST(KernelDispatch, prepares_what_it_supports_and_names_the_first_node_that_it_does_not) {
  SmallGraph g;
  CountingDispatch dispatch;
  for (const TensorNode& node : g.graph.nodes())
    EXPECT_FALSE(dispatch.Supports(g.graph, node)) << node.name;
  EXPECT_TRUE(dispatch.Prepare(g.graph));

  g.graph.AddOp(TensorOp::kMul, "gate", {g.sum, g.x}, DataType::kF32, {32, 3, 1, 1});
  const Status status = dispatch.Prepare(g.graph);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(status.error().message,
            "node 8 'gate' (mul): the counting dispatch: type: mul, needs another dispatch");
  EXPECT_TRUE(dispatch.calls.empty());
}

TEST(KernelDispatch, a_decorator_answers_as_the_dispatches_that_it_calls) {
  SmallGraph g;
  CountingDispatch all;
  struct Nothing final : KernelDispatch {
    std::string_view name() const override { return "nothing"; }
    std::optional<Rejection> Supports(const Graph&, const TensorNode& node) const override {
      if (node.op == TensorOp::kNone) return std::nullopt;
      return Rejection{Reason::kType, "everything", "nothing"};
    }
  } nothing;
  EXPECT_FALSE(nothing.Prepare(g.graph));
  const auto trace = MakeTraceDispatch(nothing, [](std::string_view) {});
  EXPECT_TRUE(trace->Supports(g.graph, g.graph.node(g.sum)));
  EXPECT_FALSE(trace->Prepare(g.graph));
  const auto compare = MakeCompareDispatch(all, nothing, [](const NodeComparison&) {});
  EXPECT_TRUE(compare->Supports(g.graph, g.graph.node(g.sum)));
  EXPECT_FALSE(compare->Prepare(g.graph));
}

TEST(Decorators, trace_and_profile_see_every_call) {
  SmallGraph g;
  std::vector<std::byte> arena(PlanMemory(g.graph).bytes);
  BindMemory(g.graph, PlanMemory(g.graph), arena.data());
  CountingDispatch dispatch;
  std::vector<std::string> lines;
  auto trace =
      MakeTraceDispatch(dispatch, [&](std::string_view line) { lines.emplace_back(line); });
  struct Sink : ProfileSink {
    std::vector<ProfileEvent> events;
    void Record(const ProfileEvent& event) override { events.push_back(event); }
  } sink;
  auto profile = MakeProfileDispatch(*trace, sink);
  ASSERT_TRUE(ExecuteGraph(g.graph, *profile));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[1], HasSubstr("5 ffn mul_mat [32, 3] f32 <- [32, 3] f32 [32, 32] q4_1"));
  ASSERT_EQ(sink.events.size(), 4u);
  std::ostringstream json;
  WriteChromeTrace(sink.events, json);
  EXPECT_THAT(json.str(), HasSubstr(R"("name":"ffn","cat":"mul_mat","ph":"X")"));
}

TEST(Decorators, compare_reports_the_distance_and_leaves_the_first_result) {
  SmallGraph g;
  std::vector<std::byte> arena(PlanMemory(g.graph).bytes);
  BindMemory(g.graph, PlanMemory(g.graph), arena.data());
  CountingDispatch one(1), two(2);
  std::vector<NodeComparison> seen;
  auto compare = MakeCompareDispatch(one, two, [&](const NodeComparison& c) { seen.push_back(c); });
  ASSERT_TRUE(ExecuteGraph(g.graph, *compare));
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_DOUBLE_EQ(seen[3].relative_l2, 0.5);
  EXPECT_DOUBLE_EQ(seen[3].max_abs, 1.0);
  EXPECT_EQ(g.graph.node(g.sum).out.as<float>()[0], 1.0f);
}

TEST(Decorators, compare_leaves_the_second_result_of_the_first_dispatch_too) {
  /// Writes its value to both results of kAddRmsNorm.
  class Constant : public KernelDispatch {
   public:
    explicit Constant(float value) : value_(value) {}
    std::string_view name() const override { return "constant"; }
    std::optional<Rejection> Supports(const Graph&, const TensorNode&) const override {
      return std::nullopt;
    }
    Status DispatchExtra(const TensorNode&, std::span<const TensorView> inputs,
                         const TensorView& out) override {
      for (const TensorView* view : {&inputs[3], &out})
        std::fill(view->as<float>(), view->as<float>() + view->elements(), value_);
      return {};
    }

   private:
    float value_;
  };
  std::vector<float> values(8);
  const TensorView view = Contiguous(values.data(), DataType::kF32, {4, 2, 1, 1});
  Graph graph;
  const NodeId x = graph.AddLeaf("x", LeafKind::kInput, view);
  const NodeId weight = graph.AddLeaf("weight", LeafKind::kWeight,
                                      Contiguous(values.data(), DataType::kF32, {4, 1, 1, 1}));
  const NodeId sum = graph.AddOp(TensorOp::kBuffer, "sum", {}, DataType::kF32, view.shape);
  const NodeId norm =
      graph.AddOp(TensorOp::kAddRmsNorm, "norm", {x, x, weight, sum}, DataType::kF32, view.shape);
  graph.node(sum).keep = graph.node(norm).keep = true;
  ASSERT_TRUE(VerifyGraph(graph));
  std::vector<std::byte> arena(PlanMemory(graph).bytes);
  BindMemory(graph, PlanMemory(graph), arena.data());
  Constant one(1), two(2);
  auto compare = MakeCompareDispatch(one, two, [](const NodeComparison&) {});
  ASSERT_TRUE(ExecuteGraph(graph, *compare));
  EXPECT_EQ(graph.node(sum).out.as<float>()[0], 1.0f);
  EXPECT_EQ(graph.node(norm).out.as<float>()[0], 1.0f);
}

}  // namespace
}  // namespace tilewright
