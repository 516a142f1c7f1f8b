#include "core/text.h"
#include "tilewright/tensor_op.h"

namespace tilewright {

void NodeCheck::Expect(std::string_view field, std::int64_t have, std::int64_t want,
                       std::string_view what) {
  if (have != want) Fault(Format("{} = {}, expected {} = {}", field, have, what, want));
}

void NodeCheck::ExpectType(std::string_view field, DataType have, DataType want) {
  if (have != want)
    Fault(Format("{} is {}, expected {}", field, DataTypeName(have), DataTypeName(want)));
}

void NodeCheck::ExpectFloat(std::string_view field, DataType have) {
  const bool is_float = have == DataType::kF32 || have == DataType::kF64 ||
                        have == DataType::kF16 || have == DataType::kBF16;
  if (!is_float) Fault(Format("{} is {}, expected a float type", field, DataTypeName(have)));
}

void NodeCheck::ExpectSameShape(std::string_view field, const TensorView& have,
                                const TensorView& want) {
  for (std::size_t d = 0; d < 4; ++d) {
    if (have.shape[d] != want.shape[d])
      Fault(Format("{}.shape[{}] = {}, expected {}", field, d, have.shape[d], want.shape[d]));
  }
}

void NodeCheck::ExpectRows(std::string_view field, const TensorView& have, std::int64_t rows) {
  ExpectType(field, have.dtype, DataType::kI32);
  Expect(field, have.shape[0], rows, "rows");
}

void NodeCheck::ExpectCacheRows(const NodeView& node, const CacheWriteInputs& at) {
  const auto input = [](std::size_t i) { return Format("inputs[{}]", i); };
  const TensorView &x = node.in(at.x), &cache = node.in(at.cache);
  ExpectFloat(input(at.x), x.dtype);
  Expect(input(at.cache) + ".shape[0]", cache.shape[0], x.shape[0], "head_dim");
  Expect(input(at.cache) + ".shape[1]", cache.shape[1], x.shape[1], "kv_heads");
  ExpectRows(input(at.positions) + ".shape[0]", node.in(at.positions), x.shape[2]);
  ExpectRows(input(at.slots) + ".shape[0]", node.in(at.slots), x.shape[2]);
  if (node.inputs[at.pages].present)
    ExpectType(input(at.pages), node.in(at.pages).dtype, DataType::kI32);
  if (node.inputs[at.cache].storage != LeafKind::kCache) Fault(input(at.cache) + " is not a cache");
}

void NodeCheck::ExpectCacheWrite(const NodeView& node, const CacheWriteInputs& at) {
  ExpectCacheRows(node, at);
  ExpectSameShape("out", node.out, node.in(at.cache));
  ExpectType("out", node.out.dtype, node.in(at.cache).dtype);
  if (node.overwrites != static_cast<int>(at.cache))
    Fault(Format("alias_of: must be the cache, inputs[{}]", at.cache));
}

}  // namespace tilewright
