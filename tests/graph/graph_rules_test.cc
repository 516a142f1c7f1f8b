// Rules of graphs and plans that a single careless change could drop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string>

#include "tilewright/graph.h"
#include "tilewright/kernel_dispatch.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

alignas(64) float g_memory[1 << 14];

TensorView View(std::array<std::int64_t, 4> shape, DataType type = DataType::kF32) {
  return Contiguous(g_memory, type, shape);
}

std::string FaultOf(const Graph& graph) {
  Status status = VerifyGraph(graph);
  return status ? "" : status.error().message;
}

TEST(PlanMemory, every_offset_is_aligned_whatever_the_sizes) {
  for (const std::size_t alignment : {std::size_t{64}, std::size_t{256}}) {
    Graph graph;
    NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({5, 3, 1, 1}));
    for (int i = 0; i < 6; ++i) {
      // 60 bytes each: none ends where the next may begin.
      x = graph.AddOp(TensorOp::kSilu, "y", {x}, DataType::kF32, {5, 3, 1, 1});
      graph.node(x).keep = true;
    }
    ASSERT_EQ(FaultOf(graph), "");
    const MemoryPlan plan = PlanMemory(graph, Reuse::kAtOnce, alignment);
    for (const TensorNode& node : graph.nodes()) {
      const std::int64_t offset = plan.offset[static_cast<std::size_t>(node.id)];
      if (node.op == TensorOp::kNone) {
        EXPECT_EQ(offset, -1);
      } else {
        EXPECT_EQ(offset % static_cast<std::int64_t>(alignment), 0) << node.id;
      }
    }
    EXPECT_EQ(plan.bytes, 6 * alignment);
  }
}

TEST(PlanMemory, a_tensor_read_through_a_view_lives_as_long_as_the_view) {
  Graph graph;
  const NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({16, 4, 1, 1}));
  const NodeId wide = graph.AddOp(TensorOp::kSilu, "wide", {x}, DataType::kF32, {16, 4, 1, 1});
  const NodeId view = graph.AddView("v", wide, 16, {16, 2, 1, 1}, {1, 16, 0, 0});
  const NodeId other = graph.AddOp(TensorOp::kSilu, "other", {x}, DataType::kF32, {16, 4, 1, 1});
  const NodeId late = graph.AddOp(TensorOp::kSilu, "late", {view}, DataType::kF32, {16, 2, 1, 1});
  graph.node(other).keep = graph.node(late).keep = true;
  ASSERT_EQ(FaultOf(graph), "");
  const MemoryPlan plan = PlanMemory(graph);
  const auto offset = [&](NodeId id) { return plan.offset[static_cast<std::size_t>(id)]; };
  EXPECT_GE(std::abs(offset(wide) - offset(other)), 256);
  EXPECT_GE(std::abs(offset(wide) - offset(late)), 128);
}

TEST(BindMemory, gives_views_and_results_in_place_the_memory_of_their_source) {
  Graph graph;
  const NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({16, 4, 1, 1}, DataType::kF16));
  const NodeId copy = graph.AddOp(TensorOp::kCopy, "copy", {x}, DataType::kF16, {16, 4, 1, 1});
  const NodeId view = graph.AddView("v", copy, 24, {8, 2, 1, 1}, {1, 16, 0, 0});
  const NodeId inner = graph.AddView("w", view, 4, {4, 2, 1, 1}, {1, 16, 0, 0});
  const NodeId silu = graph.AddOp(TensorOp::kSilu, "act", {copy}, DataType::kF16, {16, 4, 1, 1});
  graph.node(silu).alias_of = copy;
  ASSERT_EQ(FaultOf(graph), "");
  BindMemory(graph, PlanMemory(graph), g_memory);
  const auto at = [&](NodeId id) {
    return graph.node(id).out.as<std::byte>() - reinterpret_cast<std::byte*>(g_memory);
  };
  EXPECT_EQ(at(copy), 0);
  EXPECT_EQ(at(view), 48);  // 24 elements of two bytes
  EXPECT_EQ(at(inner), 56);
  EXPECT_EQ(at(silu), 0);
}

/// q, caches and what attention and scatter read beside them.
struct CacheGraph {
  Graph graph;
  NodeId x, k, v, positions, slots, k1;
  CacheGraph() {
    x = graph.AddLeaf("x", LeafKind::kInput, View({16, 2, 3, 1}));
    k = graph.AddLeaf("k", LeafKind::kCache, View({16, 2, 8, 1}));
    v = graph.AddLeaf("v", LeafKind::kCache, View({16, 2, 8, 1}));
    positions = graph.AddLeaf("positions", LeafKind::kInput, View({3, 1, 1, 1}, DataType::kI32));
    slots = graph.AddLeaf("slots", LeafKind::kInput, View({3, 1, 1, 1}, DataType::kI32));
    k1 = Scatter("k1", k);
  }
  NodeId Scatter(const char* name, NodeId cache) {
    const NodeId id = graph.AddOp(TensorOp::kKvScatter, name, {x, cache, positions, slots},
                                  graph.node(cache).out.dtype, {16, 2, 8, 1});
    graph.node(id).alias_of = cache;
    return id;
  }
  NodeId Attention(NodeId keys, NodeId values, float scale = 0.25f, std::int32_t window = 0) {
    OpParams params;
    params.attention_scale = scale;
    params.attention_window = window;
    return graph.AddOp(TensorOp::kAttention, "attention", {x, keys, values, positions, slots},
                       DataType::kF32, {32, 3, 1, 1}, params);
  }
};

TEST(VerifyGraph, a_cache_is_read_under_the_name_of_its_last_scatter) {
  CacheGraph fine;
  fine.Attention(fine.k1, fine.Scatter("v1", fine.v));
  EXPECT_EQ(FaultOf(fine.graph), "");
  CacheGraph stale;
  stale.Attention(stale.k, stale.Scatter("v1", stale.v));
  EXPECT_THAT(FaultOf(stale.graph),
              HasSubstr("inputs[1] = node 1 'k' was overwritten by node 5 'k1'"));
}

TEST(VerifyGraph,
     attention_needs_caches_of_one_type_and_shape_a_positive_scale_and_no_negative_window) {
  CacheGraph type;
  type.graph.node(type.v).out.dtype = DataType::kF16;
  type.Attention(type.k1, type.v);
  EXPECT_THAT(FaultOf(type.graph), HasSubstr("inputs[2] is f16, expected f32"));
  CacheGraph shape;
  shape.graph.node(shape.v).out.shape[2] = 7;
  shape.Attention(shape.k1, shape.v);
  EXPECT_THAT(FaultOf(shape.graph), HasSubstr("inputs[2].shape[2] = 7, expected 8"));
  CacheGraph scale;
  scale.Attention(scale.k1, scale.v, 0);
  EXPECT_THAT(FaultOf(scale.graph), HasSubstr("attention_scale = 0, must be positive"));
  CacheGraph window;
  window.Attention(window.k1, window.Scatter("v1", window.v), 0.25f, -1);
  EXPECT_THAT(FaultOf(window.graph), HasSubstr("attention_window = -1, must be 0 or more"));
  CacheGraph input;
  input.Attention(input.k1, input.graph.AddLeaf("w", LeafKind::kWeight, View({16, 2, 8, 1})));
  EXPECT_THAT(FaultOf(input.graph), HasSubstr("inputs[2] is not a cache"));
}

TEST(VerifyGraph, a_residual_has_the_type_and_shape_of_the_sum) {
  for (const bool by_type : {true, false}) {
    Graph graph;
    const NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({32, 3, 1, 1}));
    const NodeId w = graph.AddLeaf("w", LeafKind::kWeight, View({32, 16, 1, 1}));
    const NodeId r =
        graph.AddLeaf("r", LeafKind::kInput,
                      View({16, by_type ? 3 : 4, 1, 1}, by_type ? DataType::kF16 : DataType::kF32));
    graph.AddOp(TensorOp::kMulMatAdd, "sum", {x, w, r}, DataType::kF32, {16, 3, 1, 1});
    EXPECT_THAT(FaultOf(graph), HasSubstr(by_type ? "inputs[2] is f16, expected f32"
                                                  : "inputs[2].shape[1] = 4, expected 3"));
  }
}

TEST(VerifyGraph, a_result_in_place_keeps_the_strides_of_what_it_overwrites) {
  Graph graph;
  const NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({32, 3, 1, 1}));
  const NodeId wide = graph.AddOp(TensorOp::kSilu, "wide", {x}, DataType::kF32, {32, 3, 1, 1});
  const NodeId window = graph.AddView("v", wide, 0, {16, 3, 1, 1}, {1, 32, 0, 0});
  const NodeId act = graph.AddOp(TensorOp::kSilu, "act", {window}, DataType::kF32, {16, 3, 1, 1});
  graph.node(act).alias_of = window;
  EXPECT_THAT(FaultOf(graph), HasSubstr("alias_of: strides differ from those of node 2"));
  graph.node(act).out.stride = graph.node(window).out.stride;
  EXPECT_EQ(FaultOf(graph), "");
}

TEST(VerifyGraph, rope_factors_are_f32) {
  Graph graph;
  const NodeId x = graph.AddLeaf("x", LeafKind::kInput, View({16, 2, 3, 1}));
  const NodeId p = graph.AddLeaf("p", LeafKind::kInput, View({3, 1, 1, 1}, DataType::kI32));
  const NodeId f = graph.AddLeaf("f", LeafKind::kWeight, View({8, 1, 1, 1}, DataType::kF64));
  OpParams params;
  params.rope.dims = 16;
  graph.AddOp(TensorOp::kRope, "rope", {x, p, f}, DataType::kF32, {16, 2, 3, 1}, params);
  EXPECT_THAT(FaultOf(graph), HasSubstr("inputs[2] is f64, expected f32"));
}

TEST(WriteChromeTrace, no_name_breaks_the_json) {
  ProfileEvent event;
  event.name = "a\"b\\c\nd";
  event.op = TensorOp::kSilu;
  std::ostringstream json;
  WriteChromeTrace(std::span<const ProfileEvent>(&event, 1), json);
  EXPECT_THAT(json.str(), HasSubstr(R"("name":"a\"b\\cd","cat":"silu")"));
}

}  // namespace
}  // namespace tilewright
