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

void NodeCheck::ExpectCacheWrite(const NodeView& node) {
  const TensorView& x = node.in(0);
  ExpectFloat("inputs[0]", x.dtype);
  Expect("inputs[1].shape[0]", node.in(1).shape[0], x.shape[0], "head_dim");
  Expect("inputs[1].shape[1]", node.in(1).shape[1], x.shape[1], "kv_heads");
  ExpectSameShape("out", node.out, node.in(1));
  ExpectType("out", node.out.dtype, node.in(1).dtype);
  ExpectRows("inputs[2].shape[0]", node.in(2), x.shape[2]);
  ExpectRows("inputs[3].shape[0]", node.in(3), x.shape[2]);
  if (node.inputs[4].present) ExpectType("inputs[4]", node.in(4).dtype, DataType::kI32);
  if (node.inputs[1].storage != LeafKind::kCache) Fault("inputs[1] is not a cache");
  if (node.overwrites != 1) Fault("alias_of: must be the cache, inputs[1]");
}

}  // namespace tilewright
