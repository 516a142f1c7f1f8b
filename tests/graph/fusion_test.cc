// Every row of the table of fusions, on graphs made by hand: the same bits as its unfused twin, and
// only where it may be.
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

namespace tilewright {
namespace {

constexpr std::int64_t kK = 64, kN = 32, kRows = 3;
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

Made Residual(DataType weights) {
  Made made;
  const Shape shape{kN, kRows, 1, 1};
  const NodeId residual = made.Op(TensorOp::kSilu, "residual", {made.Input(kN)}, shape);
  const NodeId product = made.Product(made.Input(kK), kN, weights);
  made.between = {product};
  made.result = made.Op(TensorOp::kAdd, "sum", {product, residual}, shape);
  return made;
}

Made GatedBy(TensorOp activation) {
  Made made;
  const Shape shape{kN, kRows, 1, 1};
  const NodeId gate = made.Input(kN), up = made.Input(kN);
  const NodeId activated = made.Op(activation, "activation", {gate}, shape);
  made.between = {activated};
  made.result = made.Op(TensorOp::kMul, "mul", {activated, up}, shape);
  return made;
}
Made SwiGlu(DataType) { return GatedBy(TensorOp::kSilu); }
Made GeGlu(DataType) { return GatedBy(TensorOp::kGelu); }

Made MulMatSwiGlu(DataType weights) {
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
Made RopeScatter(DataType type, bool paged) {
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
Made RopeScatterPaged(DataType type) { return RopeScatter(type, true); }
Made RopeScatterWhole(DataType type) { return RopeScatter(type, false); }

/// What lies where in a graph whose queries, keys and values are parts of one product.
struct QkvForm {
  bool paged = false;
  bool queries_in_place = false, keys_in_place = false;
  bool runs_between = false;  ///< something else, behind the rotation of the queries
};
/// The nodes of that graph beside those that every pattern names.
struct MadeQkv : Made {
  NodeId q = kNoNode, k = kNoNode, keys = kNoNode, attention = kNoNode;
  NodeId q_again = kNoNode;  ///< another name for what q names before it is turned
};
MadeQkv RopeQkv(DataType type, const QkvForm& form) {
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
Made RopeQkvPaged(DataType type) {
  return RopeQkv(type, {.paged = true, .queries_in_place = true});
}
Made RopeQkvWhole(DataType type) { return RopeQkv(type, {}); }

/// A sum that is normalised and read again later. The norm narrows where the other patterns have
/// quantised weights.
Made AddNorm(DataType type) {
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
constexpr Pattern kPatterns[] = {
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

bool Always(const Graph&, const TensorNode&) { return true; }

std::vector<TensorOp> OpsOf(const Graph& graph) {
  std::vector<TensorOp> ops;
  for (const TensorNode& node : graph.nodes()) {
    if (node.op != TensorOp::kNone) ops.push_back(node.op);
  }
  return ops;
}
bool Has(const Graph& graph, TensorOp op) {
  const std::vector<TensorOp> ops = OpsOf(graph);
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

void ExpectValid(const Graph& graph) {
  const Status status = VerifyGraph(graph);
  EXPECT_TRUE(status) << status.error().message;
}

/// Same nodes in the same order with the same references.
void ExpectSame(const Graph& have, const Graph& want) {
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

std::vector<std::byte> BitsOf(const Graph& graph, NodeId result, KernelDispatch& dispatch) {
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

NodeId At(const FusedGraph& fused, NodeId id) { return fused.id_of[static_cast<std::size_t>(id)]; }

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
void ExpectEqualsTwin(const Pattern& pattern, DataType weights, Precision activations) {
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

TEST(Fusion, gives_what_its_unfused_twin_gives) {
  for (const Pattern& pattern : kPatterns) {
    ExpectEqualsTwin(pattern, DataType::kF32, Precision::kF32);
    ExpectEqualsTwin(pattern, DataType::kQ8_0, Precision::kF32);
    ExpectEqualsTwin(pattern, DataType::kQ8_0, Precision::kI8);
  }
}

TEST(Fusion, a_switch_that_is_off_leaves_the_graph_as_it_is) {
  for (const Pattern& pattern : kPatterns) {
    SCOPED_TRACE(FusionName(pattern.fusion));
    const Made made = pattern.make(DataType::kF32);
    ExpectSame(Fuse(made.graph, FusionSet::None(), &Always).graph, made.graph);
    for (const Pattern& other : kPatterns) {
      const FusedGraph fused = Fuse(made.graph, FusionSet::All().Without(other.fusion), &Always);
      ExpectValid(fused.graph);
      EXPECT_EQ(Has(fused.graph, pattern.op), other.fusion != pattern.fusion);
    }
  }
}

TEST(Fusion, is_not_done_where_nothing_runs_the_fused_node) {
  for (const Pattern& pattern : kPatterns) {
    SCOPED_TRACE(FusionName(pattern.fusion));
    const Made made = pattern.make(DataType::kF32);
    int asked = 0;
    const auto refuse = [&](const Graph&, const TensorNode& node) {
      EXPECT_EQ(node.op, pattern.op);
      ++asked;
      return false;
    };
    ExpectSame(Fuse(made.graph, FusionSet::Of(pattern.fusion), refuse).graph, made.graph);
    EXPECT_EQ(asked, 1);
  }
}

TEST(Fusion, is_not_done_where_another_node_reads_what_lies_between) {
  for (const Pattern& pattern : kPatterns) {
    const std::size_t between = pattern.make(DataType::kF32).between.size();
    for (std::size_t i = 0; i < between; ++i) {
      Made made = pattern.make(DataType::kF32);
      const TensorView view = made.graph.node(made.between[i]).out;
      const NodeId reader = made.Op(TensorOp::kSilu, "reader", {made.between[i]}, view.shape);
      made.graph.node(reader).keep = true;
      SCOPED_TRACE(made.graph.node(made.between[i]).name);
      ExpectValid(made.graph);
      ExpectSame(Fuse(made.graph, FusionSet::Of(pattern.fusion), &Always).graph, made.graph);
    }
  }
}

TEST(Fusion, is_not_done_where_what_lies_between_is_kept) {
  for (const Pattern& pattern : kPatterns) {
    const std::size_t between = pattern.make(DataType::kF32).between.size();
    for (std::size_t i = 0; i < between; ++i) {
      Made made = pattern.make(DataType::kF32);
      made.graph.node(made.between[i]).keep = true;
      SCOPED_TRACE(made.graph.node(made.between[i]).name);
      ExpectSame(Fuse(made.graph, FusionSet::Of(pattern.fusion), &Always).graph, made.graph);
    }
  }
}

/// The result of `rounded` in bf16, also where views show it.
void Round(Made& made, NodeId rounded) {
  for (std::size_t id = 0; id < made.graph.size(); ++id) {
    TensorNode& node = made.graph.node(static_cast<NodeId>(id));
    const bool view = node.op == TensorOp::kView && node.inputs[0] == rounded;
    if (node.id == rounded || view) node.out.dtype = DataType::kBF16;
  }
}

TEST(Fusion, drops_the_roundings_between_for_a_caller_that_allows_it) {
  for (const Pattern& pattern : kPatterns) {
    Made made = pattern.make(DataType::kF32);
    for (const NodeId between : made.between) {
      if (made.graph.node(between).op != TensorOp::kView) Round(made, between);
    }
    SCOPED_TRACE(FusionName(pattern.fusion));
    ExpectValid(made.graph);
    const FusedGraph fused =
        Fuse(made.graph, FusionSet::Of(pattern.fusion), &Always, BetweenFused::kUnrounded);
    ExpectValid(fused.graph);
    // A product with its residual takes as many launches as the sum with the norm behind it.
    EXPECT_EQ(Has(fused.graph, pattern.op), pattern.fusion != Fusion::kResidual);
    if (pattern.fusion != Fusion::kResidual) continue;
    ExpectSame(fused.graph, made.graph);
  }
}

TEST(Fusion, is_not_done_where_what_lies_between_is_rounded) {
  for (const Pattern& pattern : kPatterns) {
    const std::size_t between = pattern.make(DataType::kF32).between.size();
    for (std::size_t i = 0; i < between; ++i) {
      Made made = pattern.make(DataType::kF32);
      const NodeId rounded = made.between[i];
      if (made.graph.node(rounded).op == TensorOp::kView) continue;
      Round(made, rounded);
      SCOPED_TRACE(made.graph.node(rounded).name);
      ExpectValid(made.graph);
      ExpectSame(Fuse(made.graph, FusionSet::Of(pattern.fusion), &Always).graph, made.graph);
    }
  }
}

TEST(Fusion, an_operand_that_is_overwritten_before_the_sum_keeps_its_product_apart) {
  Made made;
  const Shape shape{kK, kRows, 1, 1};
  const NodeId x = made.Op(TensorOp::kSilu, "x", {made.Input(kK)}, shape);
  const NodeId product = made.Product(x, kK, DataType::kF32);
  const NodeId over = made.Op(TensorOp::kSilu, "over", {x}, shape);
  made.graph.node(over).alias_of = x;
  const NodeId sum = made.Op(TensorOp::kAdd, "sum", {product, over}, shape);
  made.graph.node(sum).keep = true;
  ExpectValid(made.graph);
  ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
}

/// The only sum of a graph that was fused.
const TensorNode& SumOf(const FusedGraph& fused) {
  const auto nodes = fused.graph.nodes();
  const auto at = std::find_if(nodes.begin(), nodes.end(), [](const TensorNode& node) {
    return node.op == TensorOp::kMulMatAdd;
  });
  EXPECT_NE(at, nodes.end());
  return *at;
}

TEST(FusedResidual, takes_the_memory_of_the_residual_where_nothing_reads_that_later) {
  const Made made = Residual(DataType::kF32);
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  const TensorNode& sum = SumOf(fused);
  EXPECT_EQ(sum.alias_of, sum.inputs[2]);
  EXPECT_EQ(sum.name, "product");

  Made read_later = Residual(DataType::kF32);
  const NodeId residual = read_later.graph.node(read_later.result).inputs[1];
  read_later.Op(TensorOp::kMul, "later", {residual, read_later.result}, {kN, kRows, 1, 1});
  EXPECT_EQ(SumOf(Fuse(read_later.graph, FusionSet::All(), &Always)).alias_of, kNoNode);

  Made kept = Residual(DataType::kF32);
  kept.graph.node(kept.graph.node(kept.result).inputs[1]).keep = true;
  EXPECT_EQ(SumOf(Fuse(kept.graph, FusionSet::All(), &Always)).alias_of, kNoNode);
}

TEST(FusedResidual, never_takes_the_memory_of_a_leaf_or_of_the_product_operand) {
  Made leaf;
  const NodeId product = leaf.Product(leaf.Input(kK), kN, DataType::kF32);
  leaf.Op(TensorOp::kAdd, "sum", {leaf.Input(kN), product}, {kN, kRows, 1, 1});
  const FusedGraph of_leaf = Fuse(leaf.graph, FusionSet::All(), &Always);
  ExpectValid(of_leaf.graph);
  EXPECT_EQ(SumOf(of_leaf).alias_of, kNoNode);

  Made same;
  const NodeId x = same.Op(TensorOp::kSilu, "x", {same.Input(kK)}, {kK, kRows, 1, 1});
  const NodeId squared = same.Product(x, kK, DataType::kF32);
  const NodeId sum = same.Op(TensorOp::kAdd, "sum", {squared, x}, {kK, kRows, 1, 1});
  EXPECT_EQ(SumOf(Fuse(same.graph, FusionSet::All(), &Always)).alias_of, kNoNode);
  same.graph.node(sum).alias_of = x;
  ExpectValid(same.graph);
  ExpectSame(Fuse(same.graph, FusionSet::All(), &Always).graph, same.graph);
}

TEST(FusedResidual, a_residual_whose_rows_are_one_row_stays_a_sum) {
  Made made;
  const NodeId product = made.Product(made.Input(kK), kN, DataType::kF32);
  const NodeId bias = made.Leaf("bias", LeafKind::kWeight, {kN, 1, 1, 1});
  const NodeId rows = made.graph.AddView("rows", bias, 0, {kN, kRows, 1, 1}, {1, 0, 0, 0});
  made.Op(TensorOp::kAdd, "sum", {product, rows}, {kN, kRows, 1, 1});
  ExpectValid(made.graph);
  ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
}

TEST(FusedResidual, a_chain_of_sums_runs_in_one_place_with_the_bits_of_its_twin) {
  Cpu cpu(Precision::kF32);
  Made made = Residual(DataType::kF32);
  const NodeId first = made.result;
  const NodeId second = made.Product(made.Input(kK), kN, DataType::kF32);
  const NodeId sum = made.Op(TensorOp::kAdd, "sum2", {second, first}, {kN, kRows, 1, 1});
  made.graph.node(sum).keep = true;
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  ExpectValid(fused.graph);
  EXPECT_EQ(fused.graph.node(At(fused, sum)).alias_of, At(fused, first));
  EXPECT_NE(fused.graph.node(At(fused, first)).alias_of, kNoNode);
  EXPECT_EQ(BitsOf(fused.graph, At(fused, sum), cpu.dispatch()),
            BitsOf(made.graph, sum, cpu.dispatch()));
}

TEST(FusedMulMatSwiGlu, halves_that_lie_otherwise_are_not_taken_for_gate_and_up) {
  for (const bool swapped : {true, false}) {
    Made made = MulMatSwiGlu(DataType::kF32);
    TensorNode& gate = made.graph.node(made.between[1]);
    TensorNode& up = made.graph.node(made.between[2]);
    if (swapped) {
      std::swap(gate.params.view_offset, up.params.view_offset);
    } else {  // all of gate, then all of up
      gate.out.stride[1] = up.out.stride[1] = kGatedBlock;
      up.params.view_offset = kN;
    }
    ExpectValid(made.graph);
    const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
    EXPECT_FALSE(Has(fused.graph, TensorOp::kMulMatSwiGlu)) << swapped;
    EXPECT_TRUE(Has(fused.graph, TensorOp::kSwiGlu)) << swapped;
  }
}

TEST(FusedMulMatSwiGlu, a_pair_gated_by_gelu_stays_apart_from_its_product) {
  Made made = MulMatSwiGlu(DataType::kF32);
  for (const TensorNode& node : made.graph.nodes()) {
    if (node.op == TensorOp::kSilu) made.graph.node(node.id).op = TensorOp::kGelu;
  }
  ExpectValid(made.graph);
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  EXPECT_FALSE(Has(fused.graph, TensorOp::kMulMatSwiGlu));
  EXPECT_TRUE(Has(fused.graph, TensorOp::kGeGlu));
}

TEST(FusedMulMatSwiGlu, takes_a_pair_that_is_one_node_already) {
  const Made made = MulMatSwiGlu(DataType::kF32);
  const FusedGraph once = Fuse(made.graph, FusionSet::Of(Fusion::kSwiGlu), &Always);
  ASSERT_TRUE(Has(once.graph, TensorOp::kSwiGlu));
  const FusedGraph twice = Fuse(once.graph, FusionSet::Of(Fusion::kMulMatSwiGlu), &Always);
  ExpectValid(twice.graph);
  EXPECT_EQ(OpsOf(twice.graph), std::vector<TensorOp>{TensorOp::kMulMatSwiGlu});
}

TEST(FusedRopeScatter, rows_that_are_placed_by_other_positions_are_turned_first) {
  Made made = RopeScatterWhole(DataType::kF32);
  ASSERT_TRUE(Has(Fuse(made.graph, FusionSet::All(), &Always).graph, TensorOp::kRopeScatter));
  // The slots are a list of as many integers.
  TensorNode& scatter = made.graph.node(made.result);
  scatter.inputs[2] = scatter.inputs[3];
  ExpectValid(made.graph);
  ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
}

/// As in a model: everything in the memory of the product.
MadeQkv InPlaceQkv() {
  return RopeQkv(DataType::kF32, {.paged = true, .queries_in_place = true, .keys_in_place = true});
}

TEST(FusedRopeQkv, queries_stay_in_the_product_and_keys_in_their_cache) {
  Cpu cpu(Precision::kF32);
  MadeQkv made = InPlaceQkv();
  made.graph.node(made.attention).keep = true;
  ExpectValid(made.graph);
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  ExpectValid(fused.graph);
  EXPECT_EQ(
      OpsOf(fused.graph),
      (std::vector<TensorOp>{TensorOp::kSilu, TensorOp::kView, TensorOp::kView, TensorOp::kView,
                             TensorOp::kView, TensorOp::kBuffer, TensorOp::kBuffer,
                             TensorOp::kRopeQkvScatter, TensorOp::kAttention}));
  const TensorNode& node = fused.graph.node(At(fused, made.result));
  EXPECT_EQ(fused.graph.node(At(fused, made.q)).alias_of, node.inputs[0]);
  EXPECT_EQ(fused.graph.node(fused.graph.node(At(fused, made.keys)).alias_of).leaf,
            LeafKind::kCache);
  EXPECT_EQ(BitsOf(fused.graph, At(fused, made.attention), cpu.dispatch()),
            BitsOf(made.graph, made.attention, cpu.dispatch()));
}

TEST(FusedRopeQkv, keys_and_queries_of_other_angles_or_places_stay_apart) {
  const auto apart = [](auto change) {
    MadeQkv made = InPlaceQkv();
    change(made);
    ExpectValid(made.graph);
    EXPECT_FALSE(Has(Fuse(made.graph, FusionSet::All(), &Always).graph, TensorOp::kRopeQkvScatter));
  };
  apart([](MadeQkv& m) { m.graph.node(m.q).params.rope.base = 500; });
  // The slots are a list of as many integers.
  apart([](MadeQkv& m) { m.graph.node(m.q).inputs[1] = m.graph.node(m.keys).inputs[3]; });
  apart([](MadeQkv& m) { m.graph.node(m.q).inputs[2] = kNoNode; });
  apart([](MadeQkv& m) { m.graph.node(m.result).inputs[3] = m.graph.node(m.keys).inputs[2]; });
  // Turned values.
  apart([](MadeQkv& m) { m.graph.node(m.result).inputs[0] = m.k; });
}

TEST(FusedRopeQkv, what_runs_between_keeps_them_apart) {
  for (const bool runs : {false, true}) {
    MadeQkv made = RopeQkv(DataType::kF32, {.queries_in_place = true, .runs_between = runs});
    ExpectValid(made.graph);
    EXPECT_EQ(Has(Fuse(made.graph, FusionSet::All(), &Always).graph, TensorOp::kRopeQkvScatter),
              !runs);
  }
}

TEST(FusedRopeQkv, the_verifier_refuses_to_read_what_was_turned_under_its_old_name) {
  const MadeQkv made = InPlaceQkv();
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  const NodeId node = At(fused, made.result), attention = At(fused, made.attention);
  const auto refused = [&](auto change, const char* words) {
    Graph graph = fused.graph;
    change(graph);
    const Status status = VerifyGraph(graph);
    ASSERT_FALSE(status) << words;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  };
  refused([&](Graph& g) { g.node(attention).inputs[0] = g.node(node).inputs[0]; },
          "was overwritten by node");
  refused([&](Graph& g) { g.node(attention).inputs[1] = g.node(At(fused, made.keys)).alias_of; },
          "was overwritten by node");
  refused([&](Graph& g) { g.node(At(fused, made.q)).alias_of = At(fused, made.q_again); },
          "which is no operand");
  refused([&](Graph& g) { g.node(At(fused, made.q)).alias_of = g.node(node).inputs[1]; },
          "alias_of.shape[1]");
}

TEST(FusedAddNorm, a_sum_that_is_read_or_overwritten_before_its_norm_stays_a_sum) {
  const Shape shape{kN, kRows, 1, 1};
  for (const bool reads : {true, false}) {
    Made made;
    const NodeId a = made.Op(TensorOp::kSilu, "a", {made.Input(kN)}, shape);
    const NodeId sum = made.Op(TensorOp::kAdd, "sum", {a, made.Input(kN)}, shape);
    const NodeId other = made.Op(TensorOp::kSilu, "other", {reads ? sum : a}, shape);
    if (!reads) made.graph.node(other).alias_of = a;
    const NodeId weight = made.Leaf("weight", LeafKind::kWeight, {kN, 1, 1, 1});
    made.graph.node(made.Op(TensorOp::kRmsNorm, "norm", {sum, weight}, shape)).keep = true;
    ExpectValid(made.graph);
    ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
  }
}

TEST(FusedAddNorm, the_verifier_refuses_a_buffer_that_is_read_before_it_is_written) {
  const Made made = AddNorm(DataType::kF32);
  FusedGraph fused = Fuse(made.graph, FusionSet::All(), &Always);
  ExpectValid(fused.graph);
  const NodeId sum = At(fused, made.more[0]), norm = At(fused, made.result);
  ASSERT_EQ(fused.graph.node(sum).op, TensorOp::kBuffer);
  Graph early = fused.graph;
  early.node(norm).inputs[0] = sum;
  Status status = VerifyGraph(early);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("no earlier node wrote"), std::string::npos);
  Graph twice = fused.graph;
  TensorNode again = twice.node(norm);
  twice.node(twice.AddOp(again.op, "again", again.inputs, again.out.dtype, again.out.shape)).keep =
      true;
  status = VerifyGraph(twice);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("an earlier node wrote"), std::string::npos);
  Graph nowhere = fused.graph;
  nowhere.node(norm).inputs[3] = nowhere.node(norm).inputs[0];
  status = VerifyGraph(nowhere);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("expected a buffer"), std::string::npos);
}

/// Products of `x` by weights of int8 layouts: plain, with a residual, gated.
struct Consumers {
  Made made;
  NodeId x = kNoNode;
  std::vector<NodeId> products;
};
Consumers MakeConsumers(const Cpu& cpu, DataType x_type = DataType::kF32) {
  Consumers c;
  Made& made = c.made;
  c.x = made.Op(TensorOp::kSilu, "x", {made.Input(kK)}, {kK, kRows, 1, 1});
  made.graph.node(c.x).out.dtype = x_type;
  const NodeId residual = made.Input(kN);
  const auto product = [&](TensorOp op, DataType type, std::int64_t rows, std::int64_t n) {
    const NodeId w = made.Leaf("w", LeafKind::kWeight, {kK, rows, 1, 1}, type);
    std::vector<NodeId> inputs = {c.x, w};
    if (op == TensorOp::kMulMatAdd) inputs.push_back(residual);
    c.products.push_back(made.Op(op, "product", std::move(inputs), {n, kRows, 1, 1}));
    made.graph.node(c.products.back()).keep = true;
    cpu.Pack(made, w);
  };
  product(TensorOp::kMulMat, DataType::kQ8_0, kN, kN);
  product(TensorOp::kMulMatAdd, DataType::kQ4_1, kN, kN);
  product(TensorOp::kMulMatSwiGlu, DataType::kQ4_0, 2 * kN, kN);
  return c;
}

SupportsNode On(Cpu& cpu) {
  return [&](const Graph& graph, const TensorNode& node) {
    return !cpu.dispatch().Supports(graph, node);
  };
}

TEST(FusedQuantiseOnce, int8_products_of_the_same_rows_give_the_bits_of_their_twins) {
  Cpu cpu(Precision::kI8);
  Consumers c = MakeConsumers(cpu);
  // Readers that want the values themselves.
  const NodeId plain = c.made.Product(c.x, kN, DataType::kF32);
  const NodeId sum = c.made.Op(TensorOp::kMul, "mul", {c.x, c.x}, {kK, kRows, 1, 1});
  c.made.graph.node(plain).keep = c.made.graph.node(sum).keep = true;
  ExpectValid(c.made.graph);
  const FusedGraph fused = Fuse(c.made.graph, FusionSet::Of(Fusion::kQuantiseOnce), On(cpu));
  ExpectValid(fused.graph);
  EXPECT_EQ(fused.graph.size(), c.made.graph.size() + 1);
  EXPECT_EQ(fused.id_of.size(), c.made.graph.size());
  const NodeId rounded = fused.graph.node(At(fused, c.products[0])).inputs[0];
  EXPECT_EQ(fused.graph.node(rounded).op, TensorOp::kCopy);
  EXPECT_EQ(fused.graph.node(rounded).out.dtype, DataType::kI8X32);
  EXPECT_EQ(fused.graph.node(rounded).inputs, std::vector<NodeId>{At(fused, c.x)});
  for (const NodeId id : c.products) {
    EXPECT_EQ(fused.graph.node(At(fused, id)).inputs[0], rounded);
    EXPECT_EQ(BitsOf(fused.graph, At(fused, id), cpu.dispatch()),
              BitsOf(c.made.graph, id, cpu.dispatch()));
  }
  EXPECT_EQ(fused.graph.node(At(fused, plain)).inputs[0], At(fused, c.x));
  EXPECT_EQ(fused.graph.node(At(fused, sum)).inputs[0], At(fused, c.x));
  ExpectSame(Fuse(c.made.graph, FusionSet::All().Without(Fusion::kQuantiseOnce), On(cpu)).graph,
             c.made.graph);
}

TEST(FusedQuantiseOnce, takes_two_products_that_can_read_what_was_rounded) {
  Cpu cpu(Precision::kI8);
  const Consumers c = MakeConsumers(cpu);
  const auto without = [&](std::vector<NodeId> refused) {
    return Fuse(c.made.graph, FusionSet::All(), [&, refused](const Graph&, const TensorNode& node) {
      return std::find(refused.begin(), refused.end(), node.id) == refused.end();
    });
  };
  const FusedGraph two = without({c.products[0]});
  ExpectValid(two.graph);
  EXPECT_EQ(two.graph.node(At(two, c.products[0])).inputs[0], At(two, c.x));
  const NodeId rounded = two.graph.node(At(two, c.products[1])).inputs[0];
  EXPECT_EQ(two.graph.node(rounded).op, TensorOp::kCopy);
  EXPECT_EQ(two.graph.node(At(two, c.products[2])).inputs[0], rounded);
  ExpectSame(without({c.products[0], c.products[2]}).graph, c.made.graph);
  // The node that would be new is refused.
  ExpectSame(without({static_cast<NodeId>(c.made.graph.size())}).graph, c.made.graph);
}

TEST(FusedQuantiseOnce,
     rows_that_are_overwritten_before_a_product_are_not_those_that_were_rounded) {
  Cpu cpu(Precision::kI8);
  Made made;
  const Shape shape{kK, kRows, 1, 1};
  const NodeId x = made.Op(TensorOp::kSilu, "x", {made.Input(kK)}, shape);
  const NodeId first = made.Product(x, kN, DataType::kQ8_0);
  const NodeId second = made.Product(x, kN, DataType::kQ8_0);
  const NodeId over = made.Op(TensorOp::kSilu, "over", {x}, shape);
  made.graph.node(over).alias_of = x;
  const NodeId third = made.Product(over, kN, DataType::kQ8_0);
  for (const NodeId id : {first, second, third}) {
    made.graph.node(id).keep = true;
    cpu.Pack(made, made.graph.node(id).inputs[1]);
  }
  ExpectValid(made.graph);
  const FusedGraph fused = Fuse(made.graph, FusionSet::All(), On(cpu));
  ExpectValid(fused.graph);
  EXPECT_EQ(fused.graph.size(), made.graph.size() + 1);
  EXPECT_EQ(fused.graph.node(At(fused, third)).inputs[0], At(fused, over));
  for (const NodeId id : {first, second, third})
    EXPECT_EQ(BitsOf(fused.graph, At(fused, id), cpu.dispatch()),
              BitsOf(made.graph, id, cpu.dispatch()));
}

TEST(FusedQuantiseOnce, rows_of_another_type_stay_as_they_are) {
  Cpu cpu(Precision::kI8);
  const Consumers c = MakeConsumers(cpu, DataType::kBF16);
  ExpectSame(Fuse(c.made.graph, FusionSet::All(), &Always).graph, c.made.graph);
}

TEST(FusedQuantiseOnce, an_oracle_is_not_asked_for_int8) {
  Made made;
  const NodeId x = made.Op(TensorOp::kSilu, "x", {made.Input(kK)}, {kK, kRows, 1, 1});
  for (int i = 0; i < 2; ++i) made.graph.node(made.Product(x, kN, DataType::kQ8_0)).keep = true;
  ExpectValid(made.graph);
  ExpectSame(Fuse(made.graph, FusionSet::All(), &Always).graph, made.graph);
}

TEST(FusionSet, reads_what_it_writes_and_names_a_word_it_does_not_know) {
  for (int i = 0; i < kFusions; ++i) {
    const FusionSet one = FusionSet::Of(static_cast<Fusion>(i));
    EXPECT_EQ(one.ToString(), FusionName(static_cast<Fusion>(i)));
    for (const FusionSet set : {one, FusionSet::All().Without(static_cast<Fusion>(i))})
      EXPECT_EQ(FusionSet::Parse(set.ToString()).value(), set) << set.ToString();
  }
  EXPECT_EQ(FusionSet::Parse("all").value(), FusionSet::All());
  EXPECT_EQ(FusionSet::Parse("none").value(), FusionSet::None());
  EXPECT_EQ(FusionSet::Parse("residual,swiglu").value(),
            FusionSet::Of(Fusion::kResidual).With(Fusion::kSwiGlu));
  for (const char* wrong : {"", "residual,", "swigloo", "residual,all"}) {
    const auto set = FusionSet::Parse(wrong);
    ASSERT_FALSE(set) << wrong;
    EXPECT_EQ(set.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(set.error().message.find("mul-mat-swiglu"), std::string::npos) << wrong;
  }
}

}  // namespace
}  // namespace tilewright
