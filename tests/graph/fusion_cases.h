#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "tilewright/tilewright.h"

/// Graphs made by hand that a fusion finds its pattern in, and what to compare them by. Tests only.

namespace tilewright::test_fusion {

inline constexpr std::int64_t kK = 64, kN = 32, kRows = 3;
using Shape = std::array<std::int64_t, 4>;

/// A graph with the memory of its leaves.
struct Made {
  Graph graph;
  std::vector<NodeId> between;  ///< what lies between the nodes of the pattern
  NodeId result = kNoNode;
  std::vector<NodeId> more;  ///< other results that the fused node gives
  std::deque<std::vector<std::byte>> memory;

  /// Aligned to 64 bytes.
  void* Memory(std::size_t bytes) {
    memory.emplace_back(bytes + 64);
    return reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(memory.back().data()) + 63) / 64 * 64);
  }
  NodeId Leaf(const char* name, LeafKind kind, Shape shape, DataType type = DataType::kF32) {
    const std::int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
    const auto values = test::RandomFloats(static_cast<std::size_t>(count), memory.size() + 1, 0.5);
    void* at = Memory(BytesOf(type, count));
    EXPECT_TRUE(EncodeRow(type, values.data(), count, at));
    return graph.AddLeaf(name, kind, Contiguous(at, type, shape));
  }
  NodeId Ints(const char* name, std::vector<std::int32_t> values, Shape shape) {
    memory.emplace_back(values.size() * sizeof(std::int32_t));
    std::memcpy(memory.back().data(), values.data(), memory.back().size());
    return graph.AddLeaf(name, LeafKind::kInput,
                         Contiguous(memory.back().data(), DataType::kI32, shape));
  }
  NodeId Op(TensorOp op, const char* name, std::vector<NodeId> inputs, Shape shape,
            OpParams params = {}) {
    return graph.AddOp(op, name, std::move(inputs), DataType::kF32, shape, params);
  }
  NodeId Product(NodeId x, std::int64_t n, DataType weights) {
    const NodeId w = Leaf("w", LeafKind::kWeight, {kK, n, 1, 1}, weights);
    return Op(TensorOp::kMulMat, "product", {x, w}, {n, kRows, 1, 1});
  }
  NodeId Input(std::int64_t n) { return Leaf("x", LeafKind::kInput, {n, kRows, 1, 1}); }
};

inline Made Residual(DataType weights) {
  Made made;
  const Shape shape{kN, kRows, 1, 1};
  const NodeId residual = made.Op(TensorOp::kSilu, "residual", {made.Input(kN)}, shape);
  const NodeId product = made.Product(made.Input(kK), kN, weights);
  made.between = {product};
  made.result = made.Op(TensorOp::kAdd, "sum", {product, residual}, shape);
  return made;
}

inline Made GatedBy(TensorOp activation) {
  Made made;
  const Shape shape{kN, kRows, 1, 1};
  const NodeId gate = made.Input(kN), up = made.Input(kN);
  const NodeId activated = made.Op(activation, "activation", {gate}, shape);
  made.between = {activated};
  made.result = made.Op(TensorOp::kMul, "mul", {activated, up}, shape);
  return made;
}
inline Made SwiGlu(DataType) { return GatedBy(TensorOp::kSilu); }
inline Made GeGlu(DataType) { return GatedBy(TensorOp::kGelu); }

inline Made MulMatSwiGlu(DataType weights) {
  Made made;
  const Shape half{kGatedBlock, kN / kGatedBlock, kRows, 1};
  const NodeId product = made.Product(made.Input(kK), 2 * kN, weights);
  const Shape stride{1, 2 * kGatedBlock, 2 * kN, 0};
  const NodeId gate = made.graph.AddView("gate", product, 0, half, stride);
  const NodeId up = made.graph.AddView("up", product, kGatedBlock, half, stride);
  const NodeId silu = made.Op(TensorOp::kSilu, "silu", {gate}, half);
  const NodeId mul = made.Op(TensorOp::kMul, "mul", {silu, up}, half);
  made.between = {product, gate, up, silu, mul};
  made.result = made.graph.AddView("rows", mul, 0, {kN, kRows, 1, 1}, {1, kN, 0, 0});
  return made;
}

/// Keys of three rows, one of them padding, into a cache of two slots; in two pages each where
/// `paged`, with frequency factors.
inline Made RopeScatter(DataType type, bool paged) {
  constexpr std::int64_t kHeadDim = 32, kHeads = 2, kPage = 4, kPages = 2, kSlots = 2;
  Made made;
  OpParams params;
  params.rope.dims = kHeadDim / 2;
  const NodeId x = made.Leaf("k", LeafKind::kInput, {kHeadDim, kHeads, kRows, 1});
  const NodeId positions = made.Ints("positions", {0, 6, -1}, {kRows, 1, 1, 1});
  const NodeId slots = made.Ints("slots", {1, 0, 0}, {kRows, 1, 1, 1});
  std::vector<NodeId> turn = {x, positions};
  if (paged)
    turn.push_back(made.Leaf("factors", LeafKind::kWeight, {params.rope.dims / 2, 1, 1, 1}));
  const Shape shape = paged ? Shape{kHeadDim, kHeads, kPage, kPages * kSlots}
                            : Shape{kHeadDim, kHeads, kPage * kPages, kSlots};
  const NodeId cache = made.Leaf("cache", LeafKind::kCache, shape, type);
  const NodeId rope = made.Op(TensorOp::kRope, "rope", turn, {kHeadDim, kHeads, kRows, 1}, params);
  made.between = {rope};
  std::vector<NodeId> put = {rope, cache, positions, slots};
  if (paged) put.push_back(made.Ints("pages", {2, 0, 3, 1}, {kPages, kSlots, 1, 1}));
  made.result = made.graph.AddOp(TensorOp::kKvScatter, "scatter", put, type, shape);
  made.graph.node(made.result).alias_of = cache;
  return made;
}
inline Made RopeScatterPaged(DataType type) { return RopeScatter(type, true); }
inline Made RopeScatterWhole(DataType type) { return RopeScatter(type, false); }

/// What lies where in a graph whose queries, keys and values are parts of one product.
struct QkvForm {
  bool paged = false;
  bool queries_in_place = false, keys_in_place = false;
  bool runs_between = false;  ///< something else, behind the rotation of the queries
  bool queries_kept = true;   ///< the caller reads the turned queries, which are then in memory
};
/// The nodes of that graph beside those that every pattern names.
struct MadeQkv : Made {
  NodeId q = kNoNode, k = kNoNode, keys = kNoNode, attention = kNoNode;
  NodeId q_again = kNoNode;  ///< another name for what q names before it is turned
};
inline MadeQkv RopeQkv(DataType type, const QkvForm& form) {
  constexpr std::int64_t kHeadDim = 32, kHeads = 4, kKvHeads = 2, kPage = 4, kPages = 2, kSlots = 2;
  constexpr std::int64_t kAll = (kHeads + 2 * kKvHeads) * kHeadDim;
  MadeQkv made;
  OpParams params;
  params.rope.dims = kHeadDim / 2;
  params.attention_scale = 0.25f;
  // A row of padding is left as it is: in memory of its own nobody has written it.
  const std::int32_t last = form.queries_in_place ? -1 : 3;
  const NodeId positions = made.Ints("positions", {0, 6, last}, {kRows, 1, 1, 1});
  const NodeId slots = made.Ints("slots", {1, 0, 0}, {kRows, 1, 1, 1});
  const NodeId pages =
      form.paged ? made.Ints("pages", {2, 0, 3, 1}, {kPages, kSlots, 1, 1}) : kNoNode;
  const NodeId factors =
      form.paged ? made.Leaf("factors", LeafKind::kWeight, {params.rope.dims / 2, 1, 1, 1})
                 : kNoNode;
  const NodeId qkv = made.Op(TensorOp::kSilu, "qkv", {made.Input(kAll)}, {kAll, kRows, 1, 1});
  const auto part = [&](const char* name, std::int64_t first, std::int64_t heads) {
    return made.graph.AddView(name, qkv, first * kHeadDim, {kHeadDim, heads, kRows, 1},
                              {1, kHeadDim, kAll, 0});
  };
  const NodeId q = part("q", 0, kHeads), k = part("k", kHeads, kKvHeads);
  const NodeId v = part("v", kHeads + kKvHeads, kKvHeads);
  made.q_again = part("q_again", 0, kHeads);
  const Shape shape = form.paged ? Shape{kHeadDim, kKvHeads, kPage, kPages * kSlots}
                                 : Shape{kHeadDim, kKvHeads, kPage * kPages, kSlots};
  const NodeId k_cache = made.Leaf("k_cache", LeafKind::kCache, shape, type);
  const NodeId v_cache = made.Leaf("v_cache", LeafKind::kCache, shape, type);
  const auto turn = [&](const char* name, NodeId heads, bool in_place) {
    const TensorView view = made.graph.node(heads).out;
    const NodeId id =
        made.Op(TensorOp::kRope, name, {heads, positions, factors}, view.shape, params);
    if (in_place) {
      made.graph.node(id).alias_of = heads;
      made.graph.node(id).out.stride = view.stride;
    }
    return id;
  };
  const auto put = [&](const char* name, NodeId heads, NodeId cache) {
    const NodeId id = made.graph.AddOp(TensorOp::kKvScatter, name,
                                       {heads, cache, positions, slots, pages}, type, shape);
    made.graph.node(id).alias_of = cache;
    return id;
  };
  made.q = turn("rope_q", q, form.queries_in_place);
  if (form.runs_between)
    made.graph.node(made.Op(TensorOp::kSilu, "between", {made.Input(kN)}, {kN, kRows, 1, 1})).keep =
        true;
  made.graph.node(made.q).keep = form.queries_kept;
  made.k = turn("rope_k", k, form.keys_in_place);
  made.between = {made.k};
  made.keys = put("k_scatter", made.k, k_cache);
  made.result = put("v_scatter", v, v_cache);
  made.more = {made.q, made.keys};
  made.attention = made.Op(TensorOp::kAttention, "attention",
                           {made.q, made.keys, made.result, positions, slots, pages},
                           {kHeadDim * kHeads, kRows, 1, 1}, params);
  return made;
}
inline Made RopeQkvPaged(DataType type) {
  return RopeQkv(type, {.paged = true, .queries_in_place = true});
}
inline Made RopeQkvWhole(DataType type) { return RopeQkv(type, {}); }

/// The same with the attention, which alone reads the turned queries.
inline Made RopeAttention(DataType type, bool paged) {
  MadeQkv made = RopeQkv(type, {.paged = paged, .queries_in_place = paged, .queries_kept = false});
  made.between = {made.q, made.k};
  made.more = {made.keys, made.result};
  made.result = made.attention;
  return made;
}
inline Made RopeAttentionPaged(DataType type) { return RopeAttention(type, true); }
inline Made RopeAttentionWhole(DataType type) { return RopeAttention(type, false); }

/// A sum that is normalised and read again later. The norm narrows where the other patterns have
/// quantised weights.
inline Made AddNorm(DataType type) {
  Made made;
  const Shape shape{kN, kRows, 1, 1};
  const NodeId a = made.Input(kN), b = made.Op(TensorOp::kSilu, "b", {made.Input(kN)}, shape);
  const NodeId sum = made.Op(TensorOp::kAdd, "sum", {a, b}, shape);
  const NodeId weight = made.Leaf("weight", LeafKind::kWeight, {kN, 1, 1, 1});
  made.result = made.Op(TensorOp::kRmsNorm, "norm", {sum, weight}, shape);
  if (type != DataType::kF32) made.graph.node(made.result).out.dtype = DataType::kBF16;
  made.graph.node(made.Op(TensorOp::kMul, "later", {sum, made.result}, shape)).keep = true;
  made.more = {sum};
  return made;
}

struct Pattern {
  Fusion fusion;
  TensorOp op;
  Made (*make)(DataType weights);
  /// Bound on |fused - unfused| / |unfused| of an element; 0: the bits are equal.
  float tolerance = 0;
};
inline constexpr Pattern kPatterns[] = {
    {Fusion::kResidual, TensorOp::kMulMatAdd, &Residual},
    {Fusion::kSwiGlu, TensorOp::kSwiGlu, &SwiGlu},
    {Fusion::kSwiGlu, TensorOp::kGeGlu, &GeGlu},
    // The epilogue of a product and the elementwise silu evaluate e^x differently: some units in
    // the last place.
    {Fusion::kMulMatSwiGlu, TensorOp::kMulMatSwiGlu, &MulMatSwiGlu, 8 * 0x1p-24f},
    {Fusion::kRopeScatter, TensorOp::kRopeScatter, &RopeScatterPaged},
    {Fusion::kRopeScatter, TensorOp::kRopeScatter, &RopeScatterWhole},
    {Fusion::kRopeQkv, TensorOp::kRopeQkvScatter, &RopeQkvPaged},
    {Fusion::kRopeQkv, TensorOp::kRopeQkvScatter, &RopeQkvWhole},
    {Fusion::kAddNorm, TensorOp::kAddRmsNorm, &AddNorm},
};

inline bool Always(const Graph&, const TensorNode&) { return true; }

inline std::vector<TensorOp> OpsOf(const Graph& graph) {
  std::vector<TensorOp> ops;
  for (const TensorNode& node : graph.nodes()) {
    if (node.op != TensorOp::kNone) ops.push_back(node.op);
  }
  return ops;
}
inline bool Has(const Graph& graph, TensorOp op) {
  const std::vector<TensorOp> ops = OpsOf(graph);
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

inline void ExpectValid(const Graph& graph) {
  const Status status = VerifyGraph(graph);
  EXPECT_TRUE(status) << status.error().message;
}

/// Same nodes in the same order with the same references.
inline void ExpectSame(const Graph& have, const Graph& want) {
  ASSERT_EQ(have.size(), want.size());
  for (const TensorNode& node : want.nodes()) {
    EXPECT_EQ(have.node(node.id).op, node.op) << node.name;
    EXPECT_EQ(have.node(node.id).name, node.name);
    EXPECT_EQ(have.node(node.id).inputs, node.inputs) << node.name;
    EXPECT_EQ(have.node(node.id).alias_of, node.alias_of) << node.name;
    EXPECT_EQ(have.node(node.id).keep, node.keep) << node.name;
    EXPECT_EQ(have.node(node.id).out.stride, node.out.stride) << node.name;
  }
}

inline std::vector<std::byte> BitsOf(const Graph& graph, NodeId result, KernelDispatch& dispatch) {
  Arena arena(*dispatch.device());
  auto prepared = PrepareGraph(graph, dispatch, arena);
  EXPECT_TRUE(prepared) << prepared.error().message;
  if (!prepared) return {};
  for (const TensorNode& node : graph.nodes()) {  // what an earlier run wrote is no result of ours
    if (node.leaf == LeafKind::kCache)
      std::memset(node.out.data, 0, BytesOf(node.out.dtype, node.out.elements()));
  }
  const Status status = (*prepared)->Run(dispatch.device()->default_stream());
  EXPECT_TRUE(status) << status.error().message;
  const TensorView& out = (*prepared)->graph().node(result).out;
  std::vector<std::byte> bytes(BytesOf(out.dtype, out.elements()));
  const std::size_t row = BytesOf(out.dtype, out.shape[0]);
  std::byte* to = bytes.data();
  for (std::int64_t i3 = 0; i3 < out.shape[3]; ++i3) {
    for (std::int64_t i2 = 0; i2 < out.shape[2]; ++i2) {
      for (std::int64_t i1 = 0; i1 < out.shape[1]; ++i1, to += row) {
        const std::int64_t at = i1 * out.stride[1] + i2 * out.stride[2] + i3 * out.stride[3];
        std::memcpy(to, out.as<std::byte>() + BytesOf(out.dtype, at), row);
      }
    }
  }
  return bytes;
}

inline NodeId At(const FusedGraph& fused, NodeId id) {
  return fused.id_of[static_cast<std::size_t>(id)];
}

class Cpu {
 public:
  explicit Cpu(Precision activations) {
    DispatchOptions options;
    options.activations = activations;
    options.feasible.providers = Bit(Provider::kOwn);
    dispatch_ = std::make_unique<DeviceDispatch>(*kernels_, *device_, options);
  }
  KernelDispatch& dispatch() { return *dispatch_; }

  /// `weight`, a leaf of `made`, in the layout of the kernels that round activations to int8.
  void Pack(Made& made, NodeId weight) const {
    TensorNode& leaf = made.graph.node(weight);
    const auto kernels = kernels_->gemm().kernels();
    const auto at = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* kernel) {
      return kernel->desc().type_a == Bit(DataType::kI8X32) &&
             kernel->desc().type_b == Bit(leaf.out.dtype) && !kernel->CheckDevice(device_->spec());
    });
    ASSERT_NE(at, kernels.end());
    const auto k = static_cast<std::int32_t>(leaf.out.shape[0]),
               n = static_cast<std::int32_t>(leaf.out.shape[1]);
    const MatrixLayout plain{
        .type = leaf.out.dtype, .order = Order::kColMajor, .rows = k, .cols = n, .ld = k};
    void* packed = made.Memory((*at)->PackedBytes(plain));
    ASSERT_TRUE((*at)->PackB(leaf.out.data, plain, packed, {}));
    leaf.out.data = packed;
    leaf.pack = (*at)->desc().pack_b;
    for (std::size_t id = 0; id < made.graph.size(); ++id) {
      TensorNode& reader = made.graph.node(static_cast<NodeId>(id));
      if (reader.inputs.size() > 1 && reader.inputs[1] == weight) reader.pack = leaf.pack;
    }
  }

 private:
  std::unique_ptr<Kernels> kernels_ = MakeCpuKernels();
  std::unique_ptr<Device> device_ = MakeCpuDevice(DetectCpuCappedAt(Isa::kAmx));
  std::unique_ptr<DeviceDispatch> dispatch_;
};

/// To the pattern's tolerance, and by fewer nodes.
inline void ExpectEqualsTwin(const Pattern& pattern, DataType weights, Precision activations) {
  SCOPED_TRACE(std::string(FusionName(pattern.fusion)) + " " + std::string(DataTypeName(weights)));
  Cpu cpu(activations);
  Made made = pattern.make(weights);
  made.graph.node(made.result).keep = true;
  for (const NodeId id : made.more) made.graph.node(id).keep = true;
  ExpectValid(made.graph);
  const FusedGraph fused = Fuse(
      made.graph, FusionSet::Of(pattern.fusion),
      [&](const Graph& graph, const auto& node) { return !cpu.dispatch().Supports(graph, node); });
  ExpectValid(fused.graph);
  ASSERT_NE(At(fused, made.result), kNoNode);
  EXPECT_EQ(fused.graph.node(At(fused, made.result)).op, pattern.op);
  EXPECT_TRUE(fused.graph.node(At(fused, made.result)).keep);
  for (const NodeId gone : made.between) EXPECT_EQ(At(fused, gone), kNoNode);
  EXPECT_EQ(fused.graph.size(), made.graph.size() - made.between.size());
  const std::vector<std::byte> want = BitsOf(made.graph, made.result, cpu.dispatch());
  const std::vector<std::byte> have = BitsOf(fused.graph, At(fused, made.result), cpu.dispatch());
  ASSERT_FALSE(want.empty());
  for (const NodeId id : made.more)
    EXPECT_EQ(BitsOf(fused.graph, At(fused, id), cpu.dispatch()),
              BitsOf(made.graph, id, cpu.dispatch()));
  if (pattern.tolerance == 0) {
    EXPECT_EQ(have, want);
    return;
  }
  ASSERT_EQ(have.size(), want.size());
  for (std::size_t i = 0; i < want.size(); i += sizeof(float)) {
    float fused_value, value;
    std::memcpy(&fused_value, have.data() + i, sizeof value);
    std::memcpy(&value, want.data() + i, sizeof value);
    EXPECT_LE(std::abs(fused_value - value), pattern.tolerance * std::abs(value)) << i;
  }
}

}  // namespace tilewright::test_fusion
