#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "graph/liveness.h"
#include "tilewright/graph.h"

namespace tilewright {

NodeId StorageOf(const Graph& graph, NodeId id) {
  while (graph.node(id).alias_of != kNoNode) id = graph.node(id).alias_of;
  return id;
}

std::vector<Liveness> ComputeLiveness(const Graph& graph) {
  std::vector<Liveness> lives(graph.size());
  const auto end = static_cast<std::int32_t>(graph.size());
  for (const TensorNode& node : graph.nodes()) {
    Liveness& own = lives[static_cast<std::size_t>(node.id)];
    own.first = own.last = node.id;
    auto extend = [&](NodeId id, std::int32_t to) {
      Liveness& life = lives[static_cast<std::size_t>(StorageOf(graph, id))];
      life.last = std::max(life.last, to);
    };
    extend(node.id, node.keep ? end : node.id);
    for (NodeId input : node.inputs) {
      if (input != kNoNode) extend(input, node.id);
    }
  }
  for (const TensorNode& node : graph.nodes()) {
    lives[static_cast<std::size_t>(node.id)] =
        lives[static_cast<std::size_t>(StorageOf(graph, node.id))];
  }
  return lives;
}

namespace {

/// No address space holds more, and the sums of a whole graph's bytes stay within 63 bits.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

/// The last element that a view reaches, counted from its first; nullopt beyond kMaxElements.
std::optional<std::int64_t> LastElement(const TensorView& view) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    std::int64_t reach = 0;
    if (view.shape[d] == 1) continue;
    if (__builtin_mul_overflow(view.shape[d] - 1, view.stride[d], &reach) ||
        reach > kMaxElements - last) {
      return std::nullopt;
    }
    last += reach;
  }
  return last;
}

/// The dimension whose steps come to lie on elements of the dimensions with smaller strides; -1 if
/// every index has an element of its own.
int OverlappingDimension(const TensorView& view) {
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return view.stride[a] < view.stride[b]; });
  std::int64_t last = 0;
  for (std::size_t d : order) {
    if (view.shape[d] == 1) continue;
    if (view.stride[d] <= last) return static_cast<int>(d);
    last += (view.shape[d] - 1) * view.stride[d];
  }
  return -1;
}

/// Checks one node at a time; the first fault becomes the message.
class NodeChecker {
 public:
  NodeChecker(const Graph& graph, const TensorNode& node) : graph_(graph), node_(node) {}

  Status Run() {
    CheckReferences();
    if (ok()) CheckShape();
    if (ok()) CheckStrides();
    if (ok() && node_.op != TensorOp::kNone) CheckOp();
    if (ok()) CheckAlias();
    if (ok()) return {};
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("node {} '{}' ({}): {}", node_.id, node_.name, TensorOpName(node_.op), fault_));
  }

 private:
  bool ok() const { return fault_.empty(); }

  template <class... A>
  void Fault(fmt::format_string<A...> format, A&&... args) {
    if (ok()) fault_ = fmt::format(format, std::forward<A>(args)...);
  }

  const TensorView& in(std::size_t i) const { return graph_.node(node_.inputs[i]).out; }
  bool has(std::size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != kNoNode; }

  void Expect(std::string_view field, std::int64_t have, std::int64_t want, std::string_view what) {
    if (have != want) Fault("{} = {}, expected {} = {}", field, have, what, want);
  }
  void ExpectType(std::string_view field, DataType have, DataType want) {
    if (have != want) Fault("{} is {}, expected {}", field, DataTypeName(have), DataTypeName(want));
  }
  static bool IsFloat(DataType type) {
    return type == DataType::kF32 || type == DataType::kF64 || type == DataType::kF16 ||
           type == DataType::kBF16;
  }
  void ExpectFloat(std::string_view field, DataType have) {
    if (!IsFloat(have)) Fault("{} is {}, expected a float type", field, DataTypeName(have));
  }
  void ExpectSameShape(std::string_view field, const TensorView& have, const TensorView& want) {
    for (std::size_t d = 0; d < 4; ++d) {
      if (have.shape[d] != want.shape[d]) {
        Fault("{}.shape[{}] = {}, expected {}", field, d, have.shape[d], want.shape[d]);
      }
    }
  }

  void CheckReferences() {
    const auto [least, most] = Arity();
    if (node_.inputs.size() < least || node_.inputs.size() > most) {
      Fault("{} inputs, expected {}", node_.inputs.size(),
            least == most ? std::to_string(least) : fmt::format("{} to {}", least, most));
    }
    for (std::size_t i = 0; i < node_.inputs.size() && ok(); ++i) {
      const NodeId id = node_.inputs[i];
      if (id == kNoNode) {
        if (i < least) Fault("inputs[{}] is absent", i);
        continue;
      }
      if (id < 0 || static_cast<std::size_t>(id) >= graph_.size())
        Fault("inputs[{}] = {}, there is no such node", i, id);
      else if (id >= node_.id)
        Fault("inputs[{}] = node {}, which does not run before it", i, id);
    }
    const NodeId alias = node_.alias_of;
    if (alias != kNoNode && (alias < 0 || alias >= node_.id))
      Fault("alias_of = {}, not an earlier node", alias);
  }

  std::pair<std::size_t, std::size_t> Arity() const {
    switch (node_.op) {
      case TensorOp::kNone:
        return {0, 0};
      case TensorOp::kCopy:
      case TensorOp::kSilu:
      case TensorOp::kView:
        return {1, 1};
      case TensorOp::kMulMat:
      case TensorOp::kRmsNorm:
      case TensorOp::kAdd:
      case TensorOp::kMul:
      case TensorOp::kEmbedding:
      case TensorOp::kMulMatSwiGlu:
      case TensorOp::kSwiGlu:
        return {2, 2};
      case TensorOp::kRope:
        return {2, 3};
      case TensorOp::kMulMatAdd:
        return {3, 3};
      case TensorOp::kKvScatter:
        return {4, 4};
      case TensorOp::kAttention:
        return {5, 5};
    }
    return {0, 0};
  }

  void CheckShape() {
    const TensorView& out = node_.out;
    if (out.dtype == DataType::kNone) Fault("out.dtype is none");
    for (std::size_t d = 0; d < 4; ++d) {
      if (out.shape[d] <= 0) Fault("out.shape[{}] = {}, must be positive", d, out.shape[d]);
    }
    if (!ok()) return;
    std::int64_t elements = 1;
    for (const std::int64_t extent : out.shape) {
      if (extent > kMaxElements / elements) {
        return Fault("out.shape = [{}, {}, {}, {}], must be at most {} elements", out.shape[0],
                     out.shape[1], out.shape[2], out.shape[3], kMaxElements);
      }
      elements *= extent;
    }
    const int block = GetTypeInfo(out.dtype).block_elements;
    if (out.shape[0] % block != 0) {
      Fault("out.shape[0] = {}, must be a multiple of {} for {}", out.shape[0], block,
            DataTypeName(out.dtype));
    }
    if (node_.op == TensorOp::kNone && node_.leaf == LeafKind::kNotLeaf)
      Fault("leaf kind is not set");
    if (node_.op != TensorOp::kNone && node_.leaf != LeafKind::kNotLeaf)
      Fault("an operation is marked as a leaf");
    if (node_.op == TensorOp::kNone && out.data == nullptr) Fault("out.data is null");
  }

  void CheckStrides() {
    const TensorView& out = node_.out;
    for (std::size_t d = 0; d < 4; ++d) {
      if (out.shape[d] > 1 && out.stride[d] < 0)
        return Fault("out.stride[{}] = {}, must be >= 0", d, out.stride[d]);
    }
    const std::optional<std::int64_t> last = LastElement(out);
    if (!last) return Fault("out.stride reaches beyond {} elements", kMaxElements);
    const bool written =
        node_.op == TensorOp::kNone ? node_.leaf == LeafKind::kCache : node_.op != TensorOp::kView;
    if (!written) return;
    if (const int d = OverlappingDimension(out); d >= 0) {
      const auto at = static_cast<std::size_t>(d);
      return Fault("out.stride[{}] = {}: elements of the result share memory", d, out.stride[at]);
    }
    // The plan gives a result that is nobody's alias the bytes of its elements and no more.
    if (node_.op != TensorOp::kNone && node_.alias_of == kNoNode && *last >= out.elements()) {
      Fault("out.stride reaches element {}, but a result of its own has {} elements", *last,
            out.elements());
    }
  }

  void CheckMulMat(std::int64_t n) {
    ExpectFloat("inputs[0]", in(0).dtype);
    Expect("inputs[1].shape[0]", in(1).shape[0], in(0).shape[0], "k");
    Expect("inputs[1].shape[1]", in(1).shape[1], n, "n");
    Expect("out.shape[1]", node_.out.shape[1], in(0).shape[1], "m");
    for (std::size_t d = 2; d < 4; ++d) {
      Expect("inputs[0].shape[2..3]", in(0).shape[d], 1, "1");
      Expect("inputs[1].shape[2..3]", in(1).shape[d], 1, "1");
    }
    ExpectFloat("out", node_.out.dtype);
    const Pack weight_pack = graph_.node(node_.inputs[1]).pack;
    if (node_.pack != weight_pack)
      Fault("pack = {}, but that of inputs[1] is {}", node_.pack, weight_pack);
    const TensorNode& x = graph_.node(node_.inputs[0]);
    if (x.op == TensorOp::kNone && x.pack != kPackPlain)
      Fault("inputs[0] is packed; only weights may be");
  }

  void CheckRows(std::string_view field, std::size_t i, std::int64_t rows) {
    ExpectType(field, in(i).dtype, DataType::kI32);
    Expect(field, in(i).shape[0], rows, "rows");
  }

  void CheckOp() {
    const TensorView& out = node_.out;
    switch (node_.op) {
      case TensorOp::kMulMat:
        CheckMulMat(out.shape[0]);
        break;
      case TensorOp::kMulMatAdd:
        CheckMulMat(out.shape[0]);
        ExpectSameShape("inputs[2]", in(2), out);
        ExpectType("inputs[2]", in(2).dtype, out.dtype);
        break;
      case TensorOp::kMulMatSwiGlu:
        CheckMulMat(2 * out.shape[0]);
        if (out.shape[0] % kGatedBlock != 0) {
          Fault("out.shape[0] = {}, must be a multiple of {}", out.shape[0], kGatedBlock);
        }
        break;
      case TensorOp::kRmsNorm:
        ExpectSameShape("inputs[0]", in(0), out);
        Expect("inputs[1].shape[0]", in(1).shape[0], out.shape[0], "hidden");
        ExpectType("inputs[0]", in(0).dtype, out.dtype);
        if (!(node_.params.epsilon >= 0.0f))
          Fault("epsilon = {}, must be >= 0", node_.params.epsilon);
        break;
      case TensorOp::kAdd:
      case TensorOp::kMul:
      case TensorOp::kSwiGlu:
        for (std::size_t i = 0; i < 2; ++i) {
          ExpectSameShape(i == 0 ? "inputs[0]" : "inputs[1]", in(i), out);
          ExpectType(i == 0 ? "inputs[0]" : "inputs[1]", in(i).dtype, out.dtype);
        }
        break;
      case TensorOp::kSilu:
        ExpectType("inputs[0]", in(0).dtype, out.dtype);
        ExpectSameShape("inputs[0]", in(0), out);
        break;
      case TensorOp::kCopy:
        ExpectSameShape("inputs[0]", in(0), out);
        ExpectFloat("inputs[0]", in(0).dtype);
        ExpectFloat("out", out.dtype);
        break;
      case TensorOp::kRope:
        CheckRope();
        break;
      case TensorOp::kAttention:
        CheckAttention();
        break;
      case TensorOp::kKvScatter:
        CheckScatter();
        break;
      case TensorOp::kEmbedding:
        Expect("inputs[0].shape[0]", in(0).shape[0], out.shape[0], "hidden");
        CheckRows("inputs[1].shape[0]", 1, out.shape[1]);
        ExpectFloat("out", out.dtype);
        break;
      case TensorOp::kView:
        CheckView();
        break;
      case TensorOp::kNone:
        break;
    }
  }

  void CheckRope() {
    const RopeParams& rope = node_.params.rope;
    const TensorView& out = node_.out;
    ExpectSameShape("inputs[0]", in(0), out);
    ExpectType("inputs[0]", in(0).dtype, out.dtype);
    CheckRows("inputs[1].shape[0]", 1, out.shape[2]);
    if (rope.dims <= 0 || rope.dims % 2 != 0 || rope.dims > out.shape[0]) {
      Fault("rope.dims = {}, must be even, positive and at most head_dim = {}", rope.dims,
            out.shape[0]);
    }
    if (!(rope.base > 0)) Fault("rope.base = {}, must be positive", rope.base);
    if (!has(2)) return;
    ExpectType("inputs[2]", in(2).dtype, DataType::kF32);
    Expect("inputs[2].shape[0]", in(2).shape[0], rope.dims / 2, "rope.dims / 2");
  }

  void CheckAttention() {
    const TensorView& q = in(0);
    ExpectFloat("inputs[0]", q.dtype);
    ExpectType("out", node_.out.dtype, q.dtype);
    Expect("out.shape[0]", node_.out.shape[0], q.shape[0] * q.shape[1], "head_dim * heads");
    Expect("out.shape[1]", node_.out.shape[1], q.shape[2], "m");
    Expect("inputs[1].shape[0]", in(1).shape[0], q.shape[0], "head_dim");
    if (ok() && q.shape[1] % in(1).shape[1] != 0) {
      Fault("heads = {}, must be a multiple of kv_heads = {}", q.shape[1], in(1).shape[1]);
    }
    ExpectSameShape("inputs[2]", in(2), in(1));
    ExpectType("inputs[2]", in(2).dtype, in(1).dtype);
    CheckRows("inputs[3].shape[0]", 3, q.shape[2]);
    CheckRows("inputs[4].shape[0]", 4, q.shape[2]);
    for (std::size_t i = 1; i <= 2 && ok(); ++i) {
      if (graph_.node(StorageOf(graph_, node_.inputs[i])).leaf != LeafKind::kCache)
        Fault("inputs[{}] is not a cache", i);
    }
    if (!(node_.params.attention_scale > 0))
      Fault("attention_scale = {}, must be positive", node_.params.attention_scale);
  }

  void CheckScatter() {
    const TensorView& x = in(0);
    ExpectFloat("inputs[0]", x.dtype);
    Expect("inputs[1].shape[0]", in(1).shape[0], x.shape[0], "head_dim");
    Expect("inputs[1].shape[1]", in(1).shape[1], x.shape[1], "kv_heads");
    ExpectSameShape("out", node_.out, in(1));
    ExpectType("out", node_.out.dtype, in(1).dtype);
    CheckRows("inputs[2].shape[0]", 2, x.shape[2]);
    CheckRows("inputs[3].shape[0]", 3, x.shape[2]);
    if (ok() && graph_.node(StorageOf(graph_, node_.inputs[1])).leaf != LeafKind::kCache)
      Fault("inputs[1] is not a cache");
    if (ok() && node_.alias_of != node_.inputs[1])
      Fault("alias_of = {}, must be the cache, node {}", node_.alias_of, node_.inputs[1]);
  }

  void CheckView() {
    const TensorView& source = in(0);
    if (node_.alias_of != node_.inputs[0])
      Fault("alias_of = {}, must be its source", node_.alias_of);
    ExpectType("out", node_.out.dtype, source.dtype);
    const std::int64_t offset = node_.params.view_offset;
    if (offset < 0 || offset > kMaxElements) {
      return Fault("view_offset = {}, must be 0 to {}", offset, kMaxElements);
    }
    const std::int64_t last = offset + *LastElement(node_.out);
    const std::int64_t end = *LastElement(source);
    if (last > end) Fault("reaches element {} of its source, whose last is {}", last, end);
  }

  /// In place is allowed where every operation of ours reads an element before it writes it:
  /// elementwise, rope, residual add.
  void CheckAlias() {
    if (node_.alias_of == kNoNode || node_.op == TensorOp::kView ||
        node_.op == TensorOp::kKvScatter)
      return;
    const bool in_place = node_.op == TensorOp::kAdd || node_.op == TensorOp::kMul ||
                          node_.op == TensorOp::kSilu || node_.op == TensorOp::kRope ||
                          node_.op == TensorOp::kRmsNorm || node_.op == TensorOp::kSwiGlu ||
                          node_.op == TensorOp::kMulMatAdd;
    if (!in_place)
      return Fault("alias_of = {}, but {} cannot run in place", node_.alias_of,
                   TensorOpName(node_.op));
    const std::size_t operand = node_.op == TensorOp::kMulMatAdd ? 2 : 0;
    const bool reads_it = node_.alias_of == node_.inputs[operand] ||
                          (operand == 0 && node_.inputs.size() > 1 && node_.op != TensorOp::kRope &&
                           node_.op != TensorOp::kRmsNorm && node_.alias_of == node_.inputs[1]);
    if (!reads_it) Fault("alias_of = {}, which is not an operand it may overwrite", node_.alias_of);
    const TensorView& target = graph_.node(node_.alias_of).out;
    ExpectSameShape("alias_of", target, node_.out);
    ExpectType("alias_of", target.dtype, node_.out.dtype);
    if (ok() && target.stride != node_.out.stride)
      Fault("alias_of: strides differ from those of node {}", node_.alias_of);
    const LeafKind owner = graph_.node(StorageOf(graph_, node_.alias_of)).leaf;
    if (owner == LeafKind::kWeight || owner == LeafKind::kInput)
      Fault("would overwrite the leaf it aliases");
  }

  const Graph& graph_;
  const TensorNode& node_;
  std::string fault_;
};

/// [begin, end) in elements of the storage that a node covers.
struct Extent {
  NodeId storage;
  std::int64_t begin, end;
};

Extent ExtentOf(const Graph& graph, NodeId id) {
  std::int64_t begin = 0, end = 1;
  const TensorNode& node = graph.node(id);
  for (std::size_t d = 0; d < 4; ++d) end += (node.out.shape[d] - 1) * node.out.stride[d];
  for (NodeId at = id; graph.node(at).alias_of != kNoNode; at = graph.node(at).alias_of) {
    begin += graph.node(at).op == TensorOp::kView ? graph.node(at).params.view_offset : 0;
  }
  return {StorageOf(graph, id), begin, begin + end};
}

/// A row-strided window covers only its columns, so two windows with one row stride meet only if
/// their column ranges do.
bool Overlaps(const Graph& graph, NodeId a, NodeId b) {
  const Extent x = ExtentOf(graph, a), y = ExtentOf(graph, b);
  if (x.storage != y.storage || x.begin >= y.end || y.begin >= x.end) return false;
  const TensorNode& storage = graph.node(x.storage);
  const std::int64_t row = storage.out.shape[0];
  auto columns = [&](NodeId id, const Extent& e, std::int64_t& from, std::int64_t& to) {
    const TensorView& v = graph.node(id).out;
    std::int64_t width = v.shape[0];
    if (v.stride[1] < row) width = v.shape[0] + (v.shape[1] - 1) * v.stride[1];
    from = e.begin % row;
    to = from + width;
    return to <= row;
  };
  std::int64_t xf = 0, xt = 0, yf = 0, yt = 0;
  if (!columns(a, x, xf, xt) || !columns(b, y, yf, yt)) return true;
  return xf < yt && yf < xt;
}

/// No node after an in-place write may read the overwritten tensor under its old name.
Status CheckStaleReads(const Graph& graph) {
  std::vector<NodeId> writes;
  for (const TensorNode& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const NodeId input = node.inputs[i];
      if (input == kNoNode) continue;
      for (NodeId write : writes) {
        if (write <= input || write == node.id) continue;
        if (graph.node(write).op == TensorOp::kKvScatter) {
          // A later scatter into the same cache may rename it again; reading the older name would
          // skip the newer rows.
          if (StorageOf(graph, input) != StorageOf(graph, write)) continue;
        } else if (!Overlaps(graph, input, write)) {
          continue;
        }
        return Fail(
            ErrorCode::kInvalidArgument,
            fmt::format(
                "node {} '{}' ({}): inputs[{}] = node {} '{}' was overwritten by node {} '{}'",
                node.id, node.name, TensorOpName(node.op), i, input, graph.node(input).name, write,
                graph.node(write).name));
      }
    }
    if (node.alias_of != kNoNode && node.op != TensorOp::kView) writes.push_back(node.id);
  }
  return {};
}

}  // namespace

Status VerifyGraph(const Graph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    const TensorNode& node = graph.node(static_cast<NodeId>(i));
    if (Status status = NodeChecker(graph, node).Run(); !status) return status;
  }
  return CheckStaleReads(graph);
}

}  // namespace tilewright
