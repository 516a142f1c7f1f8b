#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "graph/liveness.h"
#include "graph/node_view.h"
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

/// The dimension whose steps land on elements of dimensions with smaller strides; -1 if every index
/// has an element of its own.
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
  NodeChecker(const Graph& graph, const TensorNode& node)
      : graph_(graph), node_(node), rule_(RuleOf(node.op)) {}

  Status Run() {
    if (Computes(node_.op) && rule_ == nullptr) Fault("no operation serves it");
    if (ok()) CheckReferences();
    if (ok()) CheckShape();
    if (ok()) CheckStrides();
    if (ok() && node_.op == TensorOp::kView) CheckView();
    if (ok() && Computes(node_.op)) CheckOp();
    if (ok()) CheckAlias();
    if (ok()) return {};
    return AtNode(node_, {ErrorCode::kInvalidArgument, fault_});
  }

 private:
  bool ok() const { return fault_.empty(); }

  template <class... A>
  void Fault(fmt::format_string<A...> format, A&&... args) {
    if (ok()) fault_ = fmt::format(format, std::forward<A>(args)...);
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

  /// Least and most inputs.
  std::pair<std::size_t, std::size_t> Arity() const {
    if (node_.op == TensorOp::kNone || node_.op == TensorOp::kBuffer) return {0, 0};
    if (node_.op == TensorOp::kView) return {1, 1};
    return {rule_->min_inputs, rule_->max_inputs};
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
    // The plan gives a result that is not an alias exactly the bytes of its elements.
    if (node_.op != TensorOp::kNone && node_.alias_of == kNoNode && *last >= out.elements()) {
      Fault("out.stride reaches element {}, but a result of its own has {} elements", *last,
            out.elements());
    }
  }

  void CheckOp() {
    for (std::size_t i = 0; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i] == kNoNode) continue;
      if (((rule_->writes >> i) & 1) != 0 && graph_.node(node_.inputs[i]).op != TensorOp::kBuffer)
        return Fault("inputs[{}] = node {}, expected a buffer", i, node_.inputs[i]);
    }
    NodeCheck check;
    rule_->check(ViewOf(graph_, node_), check);
    if (!check.ok()) Fault("{}", check.fault());
  }

  void CheckView() {
    const TensorView& source = graph_.node(node_.inputs[0]).out;
    if (node_.alias_of != node_.inputs[0])
      Fault("alias_of = {}, must be its source", node_.alias_of);
    if (node_.out.dtype != source.dtype)
      Fault("out is {}, expected {}", DataTypeName(node_.out.dtype), DataTypeName(source.dtype));
    const std::int64_t offset = node_.params.view_offset;
    if (offset < 0 || offset > kMaxElements) {
      return Fault("view_offset = {}, must be 0 to {}", offset, kMaxElements);
    }
    const std::int64_t last = offset + *LastElement(node_.out);
    const std::int64_t end = *LastElement(source);
    if (last > end) Fault("reaches element {} of its source, whose last is {}", last, end);
  }

  /// In place is allowed where every kernel of ours reads an element before it writes it: the rules
  /// of the operations say so. A scatter always writes the cache it was given.
  void CheckAlias() {
    if (node_.alias_of == kNoNode || node_.op == TensorOp::kNone || node_.op == TensorOp::kView)
      return;
    if (node_.op != TensorOp::kBuffer) CheckInPlace();  // of a buffer its writer: CheckBuffers
    const TensorView& target = graph_.node(node_.alias_of).out;
    for (std::size_t d = 0; d < 4; ++d) {
      if (target.shape[d] != node_.out.shape[d])
        Fault("alias_of.shape[{}] = {}, expected {}", d, target.shape[d], node_.out.shape[d]);
    }
    if (target.dtype != node_.out.dtype)
      Fault("alias_of is {}, expected {}", DataTypeName(target.dtype),
            DataTypeName(node_.out.dtype));
    if (ok() && target.stride != node_.out.stride)
      Fault("alias_of: strides differ from those of node {}", node_.alias_of);
    const LeafKind owner = graph_.node(StorageOf(graph_, node_.alias_of)).leaf;
    if (owner == LeafKind::kWeight || owner == LeafKind::kInput)
      Fault("would overwrite the leaf it aliases");
  }

  void CheckInPlace() {
    if (rule_ == nullptr || rule_->in_place == 0)
      return Fault("alias_of = {}, but {} cannot run in place", node_.alias_of,
                   TensorOpName(node_.op));
    for (std::size_t i = 0; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i] == node_.alias_of && ((rule_->in_place >> i) & 1) != 0) return;
    }
    Fault("alias_of = {}, which is not an operand it may overwrite", node_.alias_of);
  }

  const Graph& graph_;
  const TensorNode& node_;
  const NodeRule* rule_;
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

/// A write in place by node `by`, and the name under which what it wrote is read.
struct InPlaceWrite {
  NodeId by, name;
};

/// Whether `id` is the memory that `name` names, or a view of that.
bool IsNamedBy(const Graph& graph, NodeId id, NodeId name) {
  while (id != name && id != kNoNode) id = graph.node(id).alias_of;
  return id == name;
}

/// Whether `write`, before which `input` was made, leaves what `input` names as it was.
bool LeavesAlone(const Graph& graph, const InPlaceWrite& write, NodeId input) {
  if (IsNamedBy(graph, input, write.name)) return true;
  const NodeId storage = StorageOf(graph, write.name);
  // A later scatter into the same cache may rename it again; reading the older name would skip the
  // newer rows.
  if (WritesCache(graph.node(write.by).op) && graph.node(storage).leaf == LeafKind::kCache)
    return StorageOf(graph, input) != storage;
  return !Overlaps(graph, input, write.name);
}

/// No node after an in-place write may read the overwritten tensor under its old name.
Status CheckStaleReads(const Graph& graph) {
  std::vector<InPlaceWrite> writes;  // by ascending nodes
  for (const TensorNode& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const NodeId input = node.inputs[i];
      if (input == kNoNode) continue;
      const auto later = [](NodeId id, const InPlaceWrite& write) { return id < write.by; };
      for (auto it = std::upper_bound(writes.begin(), writes.end(), input, later);
           it != writes.end(); ++it) {
        if (LeavesAlone(graph, *it, input)) continue;
        return Fail(
            ErrorCode::kInvalidArgument,
            fmt::format(
                "node {} '{}' ({}): inputs[{}] = node {} '{}' was overwritten by node {} '{}'",
                node.id, node.name, TensorOpName(node.op), i, input, graph.node(input).name, it->by,
                graph.node(it->by).name));
      }
    }
    ForEachOverwrite(graph, node, [&](NodeId name) { writes.push_back({node.id, name}); });
  }
  return {};
}

/// Whether `node` may write a buffer where it lies: in memory of its own, in a cache, or in that of
/// an operand, whose elements the operation reads before it writes them.
bool LiesWell(const Graph& graph, const TensorNode& buffer, const TensorNode& node) {
  const NodeId alias = buffer.alias_of;
  return alias == kNoNode || graph.node(StorageOf(graph, alias)).leaf == LeafKind::kCache ||
         std::find(node.inputs.begin(), node.inputs.end(), alias) != node.inputs.end();
}

/// A buffer is written by one node, and read by later ones only.
Status CheckBuffers(const Graph& graph) {
  std::vector<bool> written(graph.size(), false);
  for (const TensorNode& node : graph.nodes()) {
    const NodeRule* rule = RuleOf(node.op);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const NodeId input = node.inputs[i];
      if (input == kNoNode || graph.node(input).op != TensorOp::kBuffer) continue;
      const auto at = static_cast<std::size_t>(input);
      const bool writes = rule != nullptr && ((rule->writes >> i) & 1) != 0;
      if (writes == written[at]) {
        return Fail(
            ErrorCode::kInvalidArgument,
            fmt::format("node {} '{}' ({}): inputs[{}] = node {} '{}', a buffer that {}", node.id,
                        node.name, TensorOpName(node.op), i, input, graph.node(input).name,
                        writes ? "an earlier node wrote" : "no earlier node wrote"));
      }
      written[at] = true;
      if (!writes || LiesWell(graph, graph.node(input), node)) continue;
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("node {} '{}' ({}): inputs[{}] = node {} '{}', a buffer in the memory "
                      "of node {}, which is no operand",
                      node.id, node.name, TensorOpName(node.op), i, input, graph.node(input).name,
                      graph.node(input).alias_of));
    }
  }
  return {};
}

}  // namespace

Status VerifyGraph(const Graph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    const TensorNode& node = graph.node(static_cast<NodeId>(i));
    if (Status status = NodeChecker(graph, node).Run(); !status) return status;
  }
  if (Status status = CheckBuffers(graph); !status) return status;
  return CheckStaleReads(graph);
}

}  // namespace tilewright
