#include "one_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace tilewright::test {
namespace {

// Every block format divides these; three rows make the guards of a wrong row count show.
constexpr std::int64_t kK = 256, kRows = 3;
constexpr std::int64_t kHeadDim = 256, kHeads = 2, kKvHeads = 1, kContext = 4, kSlots = 2;
constexpr std::int64_t kRopeDims = 512, kEntries = 5, kTop = 32;
constexpr std::int64_t kExperts = 3, kUsed = 2, kPairs = kUsed * kRows;

const std::vector<std::int32_t> kPositions = {0, 2, 3}, kSlotOf = {1, 0, 1}, kIds = {4, 0, 2};
/// Expert 1 has no pairs.
const std::vector<std::int32_t> kOffsets = {0, 2, 2, 6}, kSources = {0, 2, 1, 2, 0, 1},
                                kPlaces = {5, 0, 1, 3, 2, 4};

/// Random values of any type. Those that nothing encodes to are small whole numbers.
void Fill(DataType type, std::int64_t count, std::uint64_t seed, void* out) {
  static const std::vector<float> pool = RandomFloats(1 << 19, 1, 0.5);
  const auto room = pool.size() - static_cast<std::size_t>(count);
  if (EncodeRow(type, pool.data() + seed * 251 % room, count, out)) return;
  Random random(seed);
  auto* bytes = static_cast<unsigned char*>(out);
  for (std::size_t i = 0; i < BytesOf(type, count); ++i) {
    const bool low_byte =
        type == DataType::kI32 ? i % 4 == 0 : type != DataType::kI64 || i % 8 == 0;
    bytes[i] = low_byte ? static_cast<unsigned char>(random.Between(0, 15)) : 0;
  }
}

std::vector<double> Decoded(DataType type, const void* bytes, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  EXPECT_TRUE(DecodeRow(type, bytes, count, values.data()));
  return values;
}

/// As values are in a tensor of this type.
std::vector<double> Rounded(DataType type, const std::vector<double>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(BytesOf(type, count));
  EXPECT_TRUE(EncodeRow(type, values.data(), count, bytes.data()));
  return Decoded(type, bytes.data(), count);
}

double Silu(double x) { return x / (1 + std::exp(-x)); }
double Gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
constexpr float kSoftcap = 3;
constexpr float kGateLimit = 0.75f;
double ClampedSwiGlu(double gate, double up) {
  const double limit{kGateLimit};
  gate = std::min(gate, limit);
  return gate / (1 + std::exp(-double{1.702f} * gate)) * (std::clamp(up, -limit, limit) + 1);
}

bool Gated(TensorOp op) {
  return op == TensorOp::kMulMatSwiGlu || op == TensorOp::kNormMulMatSwiGlu ||
         op == TensorOp::kMulMatExpertsSwiGlu;
}
bool OfExperts(TensorOp op) {
  return op == TensorOp::kMulMatExperts || op == TensorOp::kMulMatExpertsSwiGlu;
}
bool Normed(TensorOp op) {
  return op == TensorOp::kNormMulMat || op == TensorOp::kNormMulMatSwiGlu;
}

std::size_t At(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

std::array<bool, 3> FreeTypes(TensorOp op) {
  switch (op) {
    case TensorOp::kSilu:
    case TensorOp::kGelu:
    case TensorOp::kSoftcap:
    case TensorOp::kEmbedding:
    case TensorOp::kCopy:
      return {true, false, true};
    case TensorOp::kKvScatter:
    case TensorOp::kRopeScatter:
    case TensorOp::kRopeQkvScatter:
    case TensorOp::kTopK:
    case TensorOp::kRoute:
    case TensorOp::kMulMatExperts:
    case TensorOp::kMulMatExpertsSwiGlu:
      return {true, true, false};
    case TensorOp::kCombine:
      return {true, false, true};
    default:
      return {true, true, true};
  }
}

NodeId OneNode::Leaf(const char* name, LeafKind kind, DataType type,
                     std::array<std::int64_t, 4> shape) {
  Tensor tensor;
  const std::int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  tensor.bytes = std::make_unique<GuardedBytes>(BytesOf(type, count));
  Fill(type, count, ++seed_, tensor.bytes->data());
  tensor.values = Decoded(type, tensor.bytes->data(), count);
  const NodeId id = graph_.AddLeaf(name, kind, Contiguous(tensor.bytes->data(), type, shape));
  tensors_.push_back(std::move(tensor));
  return inputs_.emplace_back(id);
}

NodeId OneNode::Ints(const char* name, std::vector<std::int32_t> values, std::int64_t columns) {
  const NodeId id = Leaf(name, LeafKind::kInput, DataType::kI32,
                         {static_cast<std::int64_t>(values.size()) / columns, columns, 1, 1});
  Tensor& tensor = tensors_.back();
  std::memcpy(tensor.bytes->data(), values.data(), values.size() * sizeof(std::int32_t));
  tensor.values.assign(values.begin(), values.end());
  return id;
}

NodeId OneNode::Buffer(DataType type, std::array<std::int64_t, 4> shape) {
  const NodeId id = graph_.AddOp(TensorOp::kBuffer, "sum", {}, type, shape);
  Tensor tensor;
  tensor.bytes =
      std::make_unique<GuardedBytes>(BytesOf(type, shape[0] * shape[1] * shape[2] * shape[3]));
  graph_.node(id).out.data = tensor.bytes->data();
  tensors_.push_back(std::move(tensor));
  return inputs_.emplace_back(id);
}

NodeId OneNode::Op(DataType type, std::array<std::int64_t, 4> shape, OpParams params) {
  result_ = graph_.AddOp(op_, "node", inputs_, type, shape, params);
  Tensor tensor;
  tensor.bytes =
      std::make_unique<GuardedBytes>(BytesOf(type, shape[0] * shape[1] * shape[2] * shape[3]));
  graph_.node(result_).out.data = tensor.bytes->data();
  graph_.node(result_).keep = true;
  tensors_.push_back(std::move(tensor));
  return result_;
}

void OneNode::BuildProduct(NodeTypes types) {
  const std::int64_t n = std::max<std::int64_t>(32, GetTypeInfo(types.out).block_elements);
  Leaf("x", LeafKind::kInput, types.first, {kK, kRows, 1, 1});
  Leaf("w", LeafKind::kWeight, types.second, {kK, Gated(op_) ? 2 * n : n, 1, 1});
  if (Normed(op_)) Leaf("norm", LeafKind::kWeight, DataType::kF32, {kK, 1, 1, 1});
  if (op_ == TensorOp::kMulMatAdd) Leaf("residual", LeafKind::kInput, types.out, {n, kRows, 1, 1});
  Op(types.out, {n, kRows, 1, 1});
}

void OneNode::BuildExperts(NodeTypes types) {
  const std::int64_t n = std::max<std::int64_t>(32, GetTypeInfo(types.out).block_elements);
  Leaf("x", LeafKind::kInput, types.first, {kK, kRows, 1, 1});
  Leaf("w", LeafKind::kWeight, types.second, {kK, Gated(op_) ? 2 * n : n, kExperts, 1});
  Ints("offsets", kOffsets);
  Ints("sources", kSources);
  Op(types.out, {n, kPairs, 1, 1});
}

void OneNode::BuildRoute(NodeTypes types) {
  Leaf("logits", LeafKind::kInput, types.first, {kK, kRows, 1, 1});
  Buffer(DataType::kI32, {kPairs, 1, 1, 1});
  Buffer(DataType::kI32, {kUsed, kRows, 1, 1});
  Buffer(types.second, {kUsed, kRows, 1, 1});
  Op(DataType::kI32, {kK + 1, 1, 1, 1});
}

void OneNode::BuildCombine(NodeTypes types) {
  Leaf("x", LeafKind::kInput, types.first, {kK, kPairs, 1, 1});
  Ints("places", kPlaces, kRows);
  Leaf("weights", LeafKind::kInput, types.second, {kUsed, kRows, 1, 1});
  Op(types.out, {kK, kRows, 1, 1});
}

void OneNode::BuildAttention(NodeTypes types) {
  Leaf("q", LeafKind::kInput, types.first, {kHeadDim, kHeads, kRows, 1});
  for (const char* name : {"k", "v"})
    Leaf(name, LeafKind::kCache, types.second, {kHeadDim, kKvHeads, kContext, kSlots});
  Ints("positions", kPositions);
  Ints("slots", kSlotOf);
  OpParams params;
  params.attention_scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  Op(types.out, {kHeadDim * kHeads, kRows, 1, 1}, params);
}

/// What is compared is the result; the caches are others, in which buffers lie.
void OneNode::BuildRopeAttention(NodeTypes types) {
  Leaf("q", LeafKind::kInput, types.first, {kHeadDim, kHeads, kRows, 1});
  for (const char* name : {"k", "v"})
    Leaf(name, LeafKind::kInput, types.first, {kHeadDim, kKvHeads, kRows, 1});
  for (const char* name : {"k_cache", "v_cache"}) CacheBuffer(name, types.second);
  Ints("positions", kPositions);
  Ints("slots", kSlotOf);
  OpParams params;
  params.attention_scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  params.rope.dims = kHeadDim;
  Op(types.out, {kHeadDim * kHeads, kRows, 1, 1}, params);
}

/// An input that is a buffer in a cache.
void OneNode::CacheBuffer(const char* name, DataType type) {
  const std::array<std::int64_t, 4> shape = {kHeadDim, kKvHeads, kContext, kSlots};
  const NodeId cache = Leaf(name, LeafKind::kCache, type, shape);
  inputs_.back() = graph_.AddOp(TensorOp::kBuffer, "rows", {}, type, shape);
  tensors_.push_back({std::make_unique<GuardedBytes>(0), {}});  // it has no memory of its own
  graph_.node(inputs_.back()).alias_of = cache;
  graph_.node(inputs_.back()).out.data = graph_.node(cache).out.data;
}

void OneNode::BuildScatter(NodeTypes types) {
  Leaf("x", LeafKind::kInput, types.first, {kHeadDim, kKvHeads, kRows, 1});
  const NodeId cache =
      Leaf("cache", LeafKind::kCache, types.second, {kHeadDim, kKvHeads, kContext, kSlots});
  Ints("positions", kPositions);
  Ints("slots", kSlotOf);
  OpParams params;
  params.rope.dims = kHeadDim;
  result_ = graph_.AddOp(op_, "node", inputs_, types.second, graph_.node(cache).out.shape, params);
  graph_.node(result_).alias_of = cache;
  graph_.node(result_).out.data = graph_.node(cache).out.data;
  graph_.node(result_).keep = true;
}

/// What is compared is the cache of values; that of keys is another, in which a buffer lies.
void OneNode::BuildQkvScatter(NodeTypes types) {
  Leaf("q", LeafKind::kInput, types.first, {kHeadDim, kHeads, kRows, 1});
  for (const char* name : {"k", "v"})
    Leaf(name, LeafKind::kInput, types.first, {kHeadDim, kKvHeads, kRows, 1});
  Buffer(types.first, {kHeadDim, kHeads, kRows, 1});
  const std::array<std::int64_t, 4> shape = {kHeadDim, kKvHeads, kContext, kSlots};
  CacheBuffer("k_cache", types.second);
  const NodeId v_cache = Leaf("v_cache", LeafKind::kCache, types.second, shape);
  Ints("positions", kPositions);
  Ints("slots", kSlotOf);
  OpParams params;
  params.rope.dims = kHeadDim;
  result_ = graph_.AddOp(op_, "node", inputs_, types.second, shape, params);
  graph_.node(result_).alias_of = v_cache;
  graph_.node(result_).out.data = graph_.node(v_cache).out.data;
  graph_.node(result_).keep = true;
}

OneNode::OneNode(TensorOp op, NodeTypes types, std::uint64_t seed) : op_(op), seed_(seed) {
  const std::array<std::int64_t, 4> rows = {kK, kRows, 1, 1};
  switch (op) {
    case TensorOp::kMulMat:
    case TensorOp::kMulMatAdd:
    case TensorOp::kMulMatSwiGlu:
    case TensorOp::kNormMulMat:
    case TensorOp::kNormMulMatSwiGlu:
      BuildProduct(types);
      break;
    case TensorOp::kMulMatExperts:
    case TensorOp::kMulMatExpertsSwiGlu:
      BuildExperts(types);
      break;
    case TensorOp::kRoute:
      BuildRoute(types);
      break;
    case TensorOp::kCombine:
      BuildCombine(types);
      break;
    case TensorOp::kAttention:
      BuildAttention(types);
      break;
    case TensorOp::kKvScatter:
    case TensorOp::kRopeScatter:
      BuildScatter(types);
      break;
    case TensorOp::kRopeQkvScatter:
      BuildQkvScatter(types);
      break;
    case TensorOp::kRopeAttention:
      BuildRopeAttention(types);
      break;
    case TensorOp::kRope: {
      Leaf("x", LeafKind::kInput, types.first, {kRopeDims, kHeads, kRows, 1});
      Ints("positions", kPositions);
      Leaf("factors", LeafKind::kWeight, types.second, {kRopeDims / 2, 1, 1, 1});
      OpParams params;
      params.rope.dims = kRopeDims;
      Op(types.out, {kRopeDims, kHeads, kRows, 1}, params);
      break;
    }
    case TensorOp::kEmbedding:
      Leaf("table", LeafKind::kWeight, types.first, {kK, kEntries, 1, 1});
      Ints("ids", kIds);
      Op(types.out, rows);
      break;
    case TensorOp::kRmsNorm:
      Leaf("x", LeafKind::kInput, types.first, rows);
      Leaf("weight", LeafKind::kWeight, types.second, {kK, 1, 1, 1});
      Op(types.out, rows);
      break;
    case TensorOp::kAddRmsNorm:
      Leaf("a", LeafKind::kInput, types.first, rows);
      Leaf("b", LeafKind::kInput, types.second, rows);
      Leaf("weight", LeafKind::kWeight, DataType::kF32, {kK, 1, 1, 1});
      Buffer(types.second, rows);
      Op(types.out, rows);
      break;
    case TensorOp::kTopK:
      Leaf("x", LeafKind::kInput, types.first, rows);
      Buffer(types.second, {kTop, kRows, 1, 1});
      Op(DataType::kI32, {kTop, kRows, 1, 1});
      break;
    default:
      Leaf("a", LeafKind::kInput, types.first, rows);
      if (FreeTypes(op)[1]) Leaf("b", LeafKind::kInput, types.second, rows);
      OpParams params;
      params.softcap = kSoftcap;
      params.gate_limit = kGateLimit;
      Op(types.out, rows, params);
  }
  const TensorView& out = node().out;
  const auto* bytes = static_cast<const std::byte*>(out.data);
  before_.assign(bytes, bytes + BytesOf(out.dtype, out.elements()));
  name_ = std::string(TensorOpName(op)) + " (";
  for (const NodeId input : inputs_)
    name_ += std::string(DataTypeName(graph_.node(input).out.dtype)) + " ";
  name_ += "-> " + std::string(DataTypeName(out.dtype)) + ")";
}

std::vector<double> OneNode::Normalised(const std::vector<double>& x,
                                        const std::vector<double>& weight) const {
  std::vector<double> want;
  for (std::int64_t row = 0; row < kRows; ++row) {
    double squares = 0;
    for (std::int64_t i = 0; i < kK; ++i) squares += std::pow(x[At(row * kK + i)], 2);
    const double scale = 1 / std::sqrt(squares / kK + static_cast<double>(node().params.epsilon));
    for (std::int64_t i = 0; i < kK; ++i)
      want.push_back(x[At(row * kK + i)] * scale * weight[At(i)]);
  }
  return want;
}

std::vector<double> OneNode::ExpectedProduct() const {
  const std::vector<double> x = Normed(op_) ? Normalised(in(0), in(2)) : in(0);
  const std::vector<double>& w = in(1);
  const std::int64_t n = node().out.shape[0];
  // Of experts, `row` is a pair: a row of x and a matrix.
  const auto dot = [&](std::int64_t row, std::int64_t col) {
    std::int64_t first = 0;
    if (OfExperts(op_)) {
      std::int64_t expert = 0;
      while (kOffsets[At(expert + 1)] <= row) ++expert;
      first = expert * (Gated(op_) ? 2 * n : n) * kK;
      row = kSources[At(row)];
    }
    double sum = 0;
    for (std::int64_t i = 0; i < kK; ++i) sum += x[At(row * kK + i)] * w[At(first + col * kK + i)];
    return sum;
  };
  std::vector<double> want;
  for (std::int64_t row = 0; row < (OfExperts(op_) ? kPairs : kRows); ++row) {
    for (std::int64_t col = 0; col < n; ++col) {
      if (Gated(op_)) {
        const std::int64_t gate = col / kGatedBlock * 2 * kGatedBlock + col % kGatedBlock;
        want.push_back(Silu(dot(row, gate)) * dot(row, gate + kGatedBlock));
      } else {
        const double residual = op_ == TensorOp::kMulMatAdd ? in(2)[At(row * n + col)] : 0;
        want.push_back(dot(row, col) + residual);
      }
    }
  }
  return want;
}

std::vector<double> OneNode::ExpectedRope(const Heads& heads, const std::vector<double>& x,
                                          const std::vector<double>& positions,
                                          const std::vector<double>* factors) const {
  std::vector<double> want = x;
  const RopeParams& rope = node().params.rope;
  const auto dims = static_cast<double>(rope.dims);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t head = 0; head < heads.count; ++head) {
      for (std::int64_t i = 0; i < rope.dims / 2; ++i) {
        double& x0 = want[At((row * heads.count + head) * heads.dim + 2 * i)];
        double& x1 = want[At((row * heads.count + head) * heads.dim + 2 * i + 1)];
        const double angle =
            positions[At(row)] *
            std::pow(static_cast<double>(rope.base), -2.0 * static_cast<double>(i) / dims) /
            (factors != nullptr ? (*factors)[At(i)] : 1);
        const double y0 = x0 * std::cos(angle) - x1 * std::sin(angle);
        x1 = x0 * std::sin(angle) + x1 * std::cos(angle);
        x0 = y0;
      }
    }
  }
  return want;
}

/// Of x, or of the sum a + b as it is rounded to the type of b.
std::vector<double> OneNode::ExpectedNorm() const {
  std::vector<double> x = in(0);
  const bool adds = op_ == TensorOp::kAddRmsNorm;
  if (adds) {
    const DataType type = graph_.node(node().inputs[3]).out.dtype;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += in(1)[i];
    x = Rounded(type, x);
  }
  return Normalised(x, in(adds ? 2 : 1));
}

std::vector<double> OneNode::ExpectedAttention(const std::vector<double>& q,
                                               const std::vector<double>& keys,
                                               const std::vector<double>& values) const {
  std::vector<double> want;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const std::int64_t first = kSlotOf[At(row)] * kContext * kHeadDim,
                       seen = kPositions[At(row)] + 1;
    for (std::int64_t head = 0; head < kHeads; ++head) {
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t p = 0; p < seen; ++p) {
        double dot = 0;
        for (std::int64_t d = 0; d < kHeadDim; ++d)
          dot += q[At((row * kHeads + head) * kHeadDim + d)] * keys[At(first + p * kHeadDim + d)];
        sum += weights.emplace_back(
            std::exp(dot * static_cast<double>(node().params.attention_scale)));
      }
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        double value = 0;
        for (std::int64_t p = 0; p < seen; ++p)
          value += weights[At(p)] / sum * values[At(first + p * kHeadDim + d)];
        want.push_back(value);
      }
    }
  }
  return want;
}

/// Of turned queries, over caches that all rows were put into before.
std::vector<double> OneNode::ExpectedRopeAttention() const {
  const Heads queries{kHeadDim, kHeads}, heads{kHeadDim, kKvHeads};
  const std::vector<double> q =
      Rounded(node().out.dtype, ExpectedRope(queries, in(0), in(5), nullptr));
  const std::vector<double> rows[] = {ExpectedRope(heads, in(1), in(5), nullptr), in(2)};
  std::vector<double> caches[2];
  for (std::size_t part = 0; part < 2; ++part) {
    const TensorNode& buffer = graph_.node(node().inputs[3 + part]);
    caches[part] = tensors_[At(buffer.alias_of)].values;
    const std::vector<double> rounded = Rounded(buffer.out.dtype, rows[part]);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::int64_t to = (kSlotOf[At(row)] * kContext + kPositions[At(row)]) * kHeadDim;
      std::copy_n(rounded.begin() + row * kHeadDim, kHeadDim, caches[part].begin() + to);
    }
  }
  return ExpectedAttention(q, caches[0], caches[1]);
}

/// Ids by a stable sort.
std::vector<double> OneNode::ExpectedTop() const {
  std::vector<double> want;
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < kK; ++i) order.push_back(i);
    const auto at = [&](std::int64_t i) { return in(0)[At(row * kK + i)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return at(a) > at(b); });
    for (std::int64_t i = 0; i < kTop; ++i) want.push_back(static_cast<double>(order[At(i)]));
  }
  return want;
}

/// How many of the best experts of all rows come before each.
std::vector<double> OneNode::ExpectedOffsets() const {
  std::vector<double> want(kK + 1);
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < kK; ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return in(0)[At(row * kK + a)] > in(0)[At(row * kK + b)];
    });
    for (std::int64_t j = 0; j < kUsed; ++j) {
      for (std::int64_t e = order[At(j)] + 1; e <= kK; ++e) want[At(e)] += 1;
    }
  }
  return want;
}

std::vector<double> OneNode::ExpectedSum() const {
  std::vector<double> want;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t col = 0; col < kK; ++col) {
      double sum = 0;
      for (std::int64_t j = 0; j < kUsed; ++j)
        sum += in(2)[At(row * kUsed + j)] * in(0)[At(kPlaces[At(row * kUsed + j)] * kK + col)];
      want.push_back(sum);
    }
  }
  return want;
}

std::vector<double> OneNode::Expected() const {
  std::vector<double> want;
  switch (op_) {
    case TensorOp::kMulMat:
    case TensorOp::kMulMatAdd:
    case TensorOp::kMulMatSwiGlu:
    case TensorOp::kNormMulMat:
    case TensorOp::kNormMulMatSwiGlu:
    case TensorOp::kMulMatExperts:
    case TensorOp::kMulMatExpertsSwiGlu:
      return ExpectedProduct();
    case TensorOp::kRoute:
      return ExpectedOffsets();
    case TensorOp::kCombine:
      return ExpectedSum();
    case TensorOp::kRope:
      return ExpectedRope({kRopeDims, kHeads}, in(0), in(1), &in(2));
    case TensorOp::kRopeScatter:
      return ExpectedRope({kHeadDim, kKvHeads}, in(0), in(2), nullptr);
    case TensorOp::kRopeQkvScatter:
      return in(2);  // values go as they are
    case TensorOp::kAttention:
      return ExpectedAttention(in(0), in(1), in(2));
    case TensorOp::kRopeAttention:
      return ExpectedRopeAttention();
    case TensorOp::kTopK:
      return ExpectedTop();
    case TensorOp::kEmbedding:
      for (const std::int32_t id : kIds)
        want.insert(want.end(), in(0).begin() + id * kK, in(0).begin() + (id + 1) * kK);
      return want;
    case TensorOp::kRmsNorm:
    case TensorOp::kAddRmsNorm:
      return ExpectedNorm();
    default:
      for (std::size_t i = 0; i < in(0).size(); ++i) {
        const double a = in(0)[i],
                     b = FreeTypes(op_)[1] && op_ != TensorOp::kKvScatter ? in(1)[i] : 0;
        want.push_back(op_ == TensorOp::kAdd             ? a + b
                       : op_ == TensorOp::kMul           ? a * b
                       : op_ == TensorOp::kSilu          ? Silu(a)
                       : op_ == TensorOp::kSwiGlu        ? Silu(a) * b
                       : op_ == TensorOp::kGelu          ? Gelu(a)
                       : op_ == TensorOp::kGeGlu         ? Gelu(a) * b
                       : op_ == TensorOp::kClampedSwiGlu ? ClampedSwiGlu(a, b)
                       : op_ == TensorOp::kSoftcap
                           ? double{kSoftcap} * std::tanh(a / double{kSoftcap})
                           : a);
      }
      return want;
  }
}

std::vector<double> OneNode::Result() const {
  const TensorView& out = node().out;
  std::vector<double> all = Decoded(out.dtype, out.data, out.elements());
  if (!WritesCache(op_) || op_ == TensorOp::kRopeAttention) return all;
  std::vector<double> written;
  for (std::size_t row = 0; row < kPositions.size(); ++row) {
    const auto first = (kSlotOf[row] * kContext + kPositions[row]) * kHeadDim;
    written.insert(written.end(), all.begin() + first, all.begin() + first + kHeadDim);
  }
  return written;
}

std::vector<std::byte> OneNode::ResultBytes() const {
  const auto* bytes = static_cast<const std::byte*>(node().out.data);
  return {bytes, bytes + before_.size()};
}

void OneNode::Reset() { std::memcpy(node().out.data, before_.data(), before_.size()); }

bool OneNode::Untouched() const {
  return std::memcmp(node().out.data, before_.data(), before_.size()) == 0;
}

std::string OneNode::Damage() const {
  for (const Tensor& tensor : tensors_) {
    if (std::string damage = tensor.bytes->Damage(); !damage.empty()) return damage;
  }
  return {};
}

}  // namespace tilewright::test
