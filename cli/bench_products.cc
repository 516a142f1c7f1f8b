#include "bench_products.h"

#include <fmt/format.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tilewright/prepared_graph.h"
#include "tilewright/step_times.h"

namespace tilewright::cli {
namespace {

bool IsDenseProduct(TensorOp op) {
  return op == TensorOp::kMulMat || op == TensorOp::kMulMatAdd || op == TensorOp::kMulMatSwiGlu ||
         op == TensorOp::kNormMulMat || op == TensorOp::kNormMulMatSwiGlu;
}

/// Random values in device memory: one piece for each type and number of elements.
class RandomInputs {
 public:
  explicit RandomInputs(Device& device) : device_(device) {}

  /// kUnsupported for a type that is none of f32, f16, bf16 and i8x32.
  Result<void*> Get(DataType type, std::int64_t elements) {
    DeviceMemory& memory = pieces_[{type, elements}];
    if (memory) return memory.data();
    const std::vector<std::uint8_t> values = Values(type, elements);
    if (values.empty()) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("no random activations of type {}", DataTypeName(type)));
    }
    Result<DeviceMemory> made = device_.Allocate(values.size());
    if (!made) return Fail(made.error());
    memory = std::move(*made);
    const Stream stream = device_.default_stream();
    if (Status s = device_.Upload(memory.data(), values.data(), values.size(), stream); !s)
      return Fail(s.error());
    if (Status s = device_.Synchronize(stream); !s) return Fail(s.error());
    return memory.data();
  }

 private:
  static constexpr std::uint32_t kF32OneIn128 = 0x3c000000;  ///< scale of a block of codes

  /// Sign and mantissa at random, magnitudes from 0.25 to 1.
  std::vector<std::uint8_t> Values(DataType type, std::int64_t elements) {
    std::vector<std::uint8_t> bytes;
    const auto put = [&](std::uint32_t word, int count) {
      for (int i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
    };
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto bits = static_cast<std::uint32_t>(random_());
      const std::uint32_t sign = bits >> 31, octave = bits & 1;
      if (type == DataType::kF32) {
        put(sign << 31 | (125 + octave) << 23 | (bits >> 1 & 0x7fffff), 4);
      } else if (type == DataType::kBF16) {
        put(sign << 15 | (125 + octave) << 7 | (bits >> 1 & 0x7f), 2);
      } else if (type == DataType::kF16) {
        put(sign << 15 | (13 + octave) << 10 | (bits >> 1 & 0x3ff), 2);
      } else if (type == DataType::kI8X32) {
        if (i % 32 == 0) put(kF32OneIn128, 4);
        const std::uint32_t code = 32 + (bits >> 1) % 96;  // 127 at most, as copies round
        put(sign != 0 ? 256 - code : code, 1);
      }
    }
    return bytes;
  }

  Device& device_;
  std::map<std::pair<DataType, std::int64_t>, DeviceMemory> pieces_;
  std::mt19937 random_{1};
};

/// The products of the layers of `pass` as a graph of their own.
Result<Graph> ProductsOf(const Graph& pass, std::int32_t vocab, RandomInputs& inputs) {
  Graph products;
  for (const TensorNode& node : pass.nodes()) {
    if (!IsDenseProduct(node.op) || node.out.shape[0] == vocab) continue;
    std::vector<NodeId> operands;
    for (const NodeId id : node.inputs) {
      if (id == kNoNode) {
        operands.push_back(kNoNode);
        continue;
      }
      const TensorNode& operand = pass.node(id);
      if (operand.leaf == LeafKind::kWeight) {
        operands.push_back(
            products.AddLeaf(operand.name, LeafKind::kWeight, operand.out, operand.pack));
        continue;
      }
      const Result<void*> values = inputs.Get(operand.out.dtype, operand.out.elements());
      if (!values) return Fail(values.error());
      operands.push_back(
          products.AddLeaf(operand.name, LeafKind::kInput,
                           Contiguous(*values, operand.out.dtype, operand.out.shape)));
    }
    const NodeId product = products.AddOp(node.op, node.name, std::move(operands), node.out.dtype,
                                          node.out.shape, node.params);
    products.node(product).pack = node.pack;
  }
  return products;
}

}  // namespace

Result<ProductChain> TimeProducts(const LoadedModel& loaded, std::int32_t rows, int repeat) {
  Device& device = loaded.context->device();
  const Result<const Graph*> pass = loaded.session->GraphFor(rows, rows);
  if (!pass) return Fail(pass.error());
  RandomInputs inputs(device);
  Result<Graph> graph = ProductsOf(**pass, loaded.model->config().vocab, inputs);
  if (!graph) return Fail(graph.error());
  if (graph->size() == 0) return ProductChain{};
  Arena arena(device);
  const auto prepared = PrepareGraph(std::move(*graph), *loaded.dispatch, arena);
  if (!prepared) return Fail(prepared.error());
  const Stream stream = device.default_stream();
  if (Status ran = (*prepared)->Run(stream); !ran) return Fail(ran.error());
  // As a session runs its passes: each launch of a stream costs a GPU half a microsecond more.
  const Status captured = (*prepared)->Capture(device, stream);
  if (!captured && captured.error().code != ErrorCode::kUnsupported) return Fail(captured.error());
  const Result<StepTimes> times = TimeSteps(**prepared, device, stream, {}, repeat);
  if (!times) return Fail(times.error());
  ProductChain chain{.us = times->pass_us};
  for (const StepGroup& group : times->groups) {
    chain.products += group.count;
    chain.bytes += group.count * group.bytes;
  }
  return chain;
}

}  // namespace tilewright::cli
