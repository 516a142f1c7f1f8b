#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "tilewright/tilewright.h"

namespace tilewright::test {

/// The types that an operation lets one choose, in the order of its operands; an operation that has
/// fewer than three ignores the rest.
struct NodeTypes {
  DataType first = DataType::kF32;   ///< x, q or the table; results in place take it too
  DataType second = DataType::kF32;  ///< weight, cache, other operand or frequency factors
  DataType out = DataType::kF32;
};

/// How many of NodeTypes' members the operation reads: 3 for a product (x, weight, out).
std::array<bool, 3> FreeTypes(TensorOp op);

/// A graph of leaves and one operation, every tensor in guarded memory of its own, inputs random,
/// the output poisoned.
class OneNode {
 public:
  OneNode(TensorOp op, NodeTypes types, std::uint64_t seed);
  OneNode(const OneNode&) = delete;
  OneNode& operator=(const OneNode&) = delete;

  const Graph& graph() const { return graph_; }
  const TensorNode& node() const { return graph_.node(result_); }
  /// "mul_mat (f32, q4_1) -> f16".
  const std::string& name() const { return name_; }

  /// The result in float64, from the operands' exact values, by the plainest loops; for a scatter
  /// the rows that it writes.
  std::vector<double> Expected() const;
  /// The same elements as they are in memory.
  std::vector<double> Result() const;
  std::vector<std::byte> ResultBytes() const;
  /// Makes the output what it was before any run.
  void Reset();
  /// True while nobody wrote the output.
  bool Untouched() const;
  /// The guard that was written, if any.
  std::string Damage() const;

 private:
  struct Tensor {
    std::unique_ptr<GuardedBytes> bytes;
    std::vector<double> values;
  };
  NodeId Leaf(const char* name, LeafKind kind, DataType type, std::array<std::int64_t, 4> shape);
  NodeId Ints(const char* name, std::vector<std::int32_t> values, std::int64_t columns = 1);
  /// Memory for a second result.
  NodeId Buffer(DataType type, std::array<std::int64_t, 4> shape);
  NodeId Op(DataType type, std::array<std::int64_t, 4> shape, OpParams params = {});
  void BuildProduct(NodeTypes types);
  void BuildExperts(NodeTypes types);
  void BuildRoute(NodeTypes types);
  void BuildCombine(NodeTypes types);
  void BuildAttention(NodeTypes types);
  void BuildRopeAttention(NodeTypes types);
  void CacheBuffer(const char* name, DataType type);
  void BuildScatter(NodeTypes types);
  void BuildQkvScatter(NodeTypes types);
  const std::vector<double>& in(std::size_t i) const {
    return tensors_[static_cast<std::size_t>(node().inputs[i])].values;
  }
  /// Rows divided by the root of their mean square, times `weight`.
  std::vector<double> Normalised(const std::vector<double>& x,
                                 const std::vector<double>& weight) const;
  std::vector<double> ExpectedProduct() const;
  struct Heads {
    std::int64_t dim, count;
  };
  /// `factors`: nullptr without.
  std::vector<double> ExpectedRope(const Heads& heads, const std::vector<double>& x,
                                   const std::vector<double>& positions,
                                   const std::vector<double>* factors) const;
  std::vector<double> ExpectedNorm() const;
  std::vector<double> ExpectedAttention(const std::vector<double>& q,
                                        const std::vector<double>& keys,
                                        const std::vector<double>& values) const;
  std::vector<double> ExpectedRopeAttention() const;
  std::vector<double> ExpectedTop() const;
  std::vector<double> ExpectedOffsets() const;
  std::vector<double> ExpectedSum() const;

  TensorOp op_;
  Graph graph_;
  std::vector<NodeId> inputs_;
  std::vector<Tensor> tensors_;  ///< by node
  NodeId result_ = kNoNode;
  std::vector<std::byte> before_;
  std::string name_;
  std::uint64_t seed_;
};

}  // namespace tilewright::test
