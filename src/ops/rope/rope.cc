#include "ops/rope/rope.h"

#include <memory>

#include "core/paged_cache.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/rope/angles.h"

namespace tilewright::rope {
namespace {

bool IsCacheType(DataType type) { return IsFloatType(type) || type == DataType::kQ8_0; }

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  const bool out = desc.scatter ? IsCacheType(desc.type_out) : IsFloatType(desc.type_out);
  if (!IsFloatType(desc.type_in) || !out) {
    return Rejection{
        Reason::kType, Format("{} to {}", DataTypeName(desc.type_in), DataTypeName(desc.type_out)),
        desc.scatter ? "f64, f32, f16 or bf16 into one of them or q8_0" : "f64, f32, f16 or bf16"};
  }
  if (desc.kv_heads > 0 && !IsCacheType(desc.type_cache)) {
    return Rejection{Reason::kType, Format("a cache of {}", DataTypeName(desc.type_cache)),
                     "f64, f32, f16, bf16 or q8_0"};
  }
  return std::nullopt;
}

double ReferenceUs(const Desc& desc) {
  return static_cast<double>(desc.rows) * (desc.heads + 2 * desc.kv_heads) * desc.head_dim * 50e-3;
}

/// The rotation itself: `factors` says which input holds the frequency factors.
void CheckRotation(const NodeView& node, std::size_t factors, NodeCheck& check) {
  const RopeParams& rope = node.params.rope;
  const std::int64_t head_dim = node.in(0).shape[0];
  check.ExpectFloat("inputs[0]", node.in(0).dtype);
  if (rope.dims <= 0 || rope.dims % 2 != 0 || rope.dims > head_dim) {
    check.Fault(Format("rope.dims = {}, must be even, positive and at most head_dim = {}",
                       rope.dims, head_dim));
  }
  if (!(rope.base > 0)) check.Fault(Format("rope.base = {}, must be positive", rope.base));
  if (!node.inputs[factors].present) return;
  const TensorView& view = node.in(factors);
  const std::string name = Format("inputs[{}]", factors);
  check.ExpectType(name, view.dtype, DataType::kF32);
  check.Expect(name + ".shape[0]", view.shape[0], rope.dims / 2, "rope.dims / 2");
}

void CheckRope(const NodeView& node, NodeCheck& check) {
  check.ExpectSameShape("inputs[0]", node.in(0), node.out);
  check.ExpectFloat("out", node.out.dtype);
  check.ExpectRows("inputs[1].shape[0]", node.in(1), node.out.shape[2]);
  CheckRotation(node, 2, check);
}

void CheckRopeScatter(const NodeView& node, NodeCheck& check) {
  check.ExpectCacheWrite(node);
  CheckRotation(node, 5, check);
}

void CheckRopeQkvScatter(const NodeView& node, NodeCheck& check) {
  check.ExpectSameShape("inputs[3]", node.in(3), node.in(0));
  check.ExpectFloat("inputs[3]", node.in(3).dtype);
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
    check.ExpectType(Format("inputs[{}]", i), node.in(i).dtype, node.in(0).dtype);
  check.Expect("inputs[1].shape[0]", node.in(1).shape[0], node.in(0).shape[0], "head_dim");
  check.Expect("inputs[1].shape[2]", node.in(1).shape[2], node.in(0).shape[2], "rows");
  check.ExpectSameShape("inputs[2]", node.in(2), node.in(1));
  check.ExpectCacheRows(node, {.x = 1, .cache = 4, .positions = 6, .slots = 7, .pages = 8});
  check.ExpectCacheWrite(node, {.x = 2, .cache = 5, .positions = 6, .slots = 7, .pages = 8});
  check.ExpectSameShape("inputs[5]", node.in(5), node.in(4));
  check.ExpectType("inputs[5]", node.in(5).dtype, node.in(4).dtype);
  CheckRotation(node, 9, check);
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kRope,
                                .name = "rope",
                                .min_inputs = 2,
                                .max_inputs = 3,
                                .in_place = 1u << 0,
                                .check = &CheckRope},
                               {.op = TensorOp::kRopeScatter,
                                .name = "rope_scatter",
                                .min_inputs = 4,
                                .max_inputs = 6,
                                .in_place = 1u << 1,
                                .check = &CheckRopeScatter},
                               {.op = TensorOp::kRopeQkvScatter,
                                .name = "rope_qkv_scatter",
                                .min_inputs = 8,
                                .max_inputs = 10,
                                .in_place = 1u << 5,
                                .writes = 1u << 3 | 1u << 4,
                                .check = &CheckRopeQkvScatter}};

/// Rows of `x` into args.cache.
Status CheckCache(const Args& args, const TensorView& x) {
  if (Status s = CheckView("rope: cache", args.cache); !s) return s;
  if (Status s = CheckRowsFitCache("rope", x, args.cache); !s) return s;
  if (Status s = CheckInts("rope: slots", args.slots, x.shape[2]); !s) return s;
  return CheckPageTable("rope", args.pages);
}

/// Where the heads go.
Status CheckTarget(const Args& args) {
  if (!IntoCache(args)) {
    if (Status s = CheckView("rope: out", args.out); !s) return s;
    return CheckSameShape("rope: out", args.out, "qk", args.qk);
  }
  if (args.out.data != nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                "rope: out and a cache: one of them must be without data");
  return CheckCache(args, args.qk);
}

/// Keys and values, and their caches.
Status CheckKeys(const Args& args) {
  const TensorView &q = args.qk, &k = args.k;
  if (Status s = CheckView("rope: k", k); !s) return s;
  if (Status s = CheckView("rope: v", args.v); !s) return s;
  if (k.dtype != q.dtype || args.v.dtype != q.dtype) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: k is {} and v {}, must be {} as qk", DataTypeName(k.dtype),
                       DataTypeName(args.v.dtype), DataTypeName(q.dtype)));
  }
  if (k.shape[0] != q.shape[0] || k.shape[2] != q.shape[2] || k.shape[3] != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: k has shape {}, must be [{}, kv_heads, {}]", ShapeText(k), q.shape[0],
                       q.shape[2]));
  }
  if (Status s = CheckSameShape("rope: v", args.v, "k", k); !s) return s;
  if (Status s = CheckCache(args, k); !s) return s;
  if (Status s = CheckView("rope: v_cache", args.v_cache); !s) return s;
  if (args.v_cache.dtype != args.cache.dtype) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: v_cache is {}, must be {} as the cache of k",
                       DataTypeName(args.v_cache.dtype), DataTypeName(args.cache.dtype)));
  }
  if (Status s = CheckSameShape("rope: v_cache", args.v_cache, "the cache of k", args.cache); !s)
    return s;
  return CheckRowsFitCache("rope: v", args.v, args.v_cache);  // its strides
}

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  if (node.op == TensorOp::kRopeScatter) {
    return {.qk = node.in(0),
            .positions = node.in(2),
            .factors = node.in(5),
            .out = {},
            .params = node.params.rope,
            .cache = node.out,
            .slots = node.in(3),
            .pages = node.in(4)};
  }
  if (node.op == TensorOp::kRopeQkvScatter) {
    return {.qk = node.in(0),
            .positions = node.in(6),
            .factors = node.in(9),
            .out = node.in(3),
            .params = node.params.rope,
            .cache = node.in(4),
            .slots = node.in(7),
            .pages = node.in(8),
            .k = node.in(1),
            .v = node.in(2),
            .v_cache = node.out};
  }
  return {.qk = node.in(0),
          .positions = node.in(1),
          .factors = node.in(2),
          .out = node.out,
          .params = node.params.rope};
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckView("rope: qk", args.qk); !s) return Fail(s.error());
  if (args.qk.shape[3] != 1) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("rope: qk has shape {}, must be [head_dim, heads, rows]", ShapeText(args.qk)));
  }
  if (Status s = CheckInts("rope: positions", args.positions, args.qk.shape[2]); !s)
    return Fail(s.error());
  if (Status s = CheckTarget(args); !s) return Fail(s.error());
  if (HasKeys(args)) {
    if (Status s = CheckKeys(args); !s) return Fail(s.error());
  }
  const std::int32_t dims = args.params.dims;
  if (dims < 2 || dims % 2 != 0 || dims > kMaxDims || dims > args.qk.shape[0]) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: dims = {}, must be even and at most head_dim = {} and {}", dims,
                       args.qk.shape[0], kMaxDims));
  }
  if (args.factors.data != nullptr &&
      (args.factors.dtype != DataType::kF32 || args.factors.shape[0] < dims / 2 ||
       args.factors.stride[0] != 1)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: factors {} {}, must be {} adjacent f32",
                       DataTypeName(args.factors.dtype), ShapeText(args.factors), dims / 2));
  }
  if (args.table != nullptr && args.table->params() != args.params)
    return Fail(ErrorCode::kInvalidArgument, "rope: the table was made for other parameters");
  const bool scatter = IntoCache(args), keys = HasKeys(args);
  const bool paged = (scatter || keys) && args.pages.data != nullptr;
  return Desc{.type_in = args.qk.dtype,
              .type_out = scatter ? args.cache.dtype : args.out.dtype,
              .mode = args.params.mode,
              .rows = static_cast<std::int32_t>(args.qk.shape[2]),
              .heads = static_cast<std::int32_t>(args.qk.shape[1]),
              .head_dim = static_cast<std::int32_t>(args.qk.shape[0]),
              .dims = dims,
              .scatter = scatter,
              .kv_heads = keys ? static_cast<std::int32_t>(args.k.shape[1]) : 0,
              .type_cache = keys ? args.cache.dtype : DataType::kNone,
              .page_size = paged ? static_cast<std::int32_t>(args.cache.shape[2]) : 0,
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.heads < 1 || desc.head_dim < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: rows = {}, heads = {}, head_dim = {}: each must be at least 1",
                       desc.rows, desc.heads, desc.head_dim));
  }
  if (desc.dims < 2 || desc.dims % 2 != 0 || desc.dims > kMaxDims || desc.dims > desc.head_dim) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: dims = {}, must be even and at most head_dim = {} and {}", desc.dims,
                       desc.head_dim, kMaxDims));
  }
  const bool keys = desc.kv_heads > 0;
  if (desc.kv_heads < 0 || (keys && desc.scatter) || keys != (desc.type_cache != DataType::kNone)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: kv_heads = {}, type_cache = {}, scatter = {}: keys and values need a "
                       "cache of a type, and the heads beside them go into none",
                       desc.kv_heads, DataTypeName(desc.type_cache), desc.scatter ? "yes" : "no"));
  }
  if (desc.page_size < 0 || (!desc.scatter && !keys && desc.page_size != 0)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("rope: page_size = {}: must be 0 or more, and 0 without a cache", desc.page_size));
  }
  const DataType stored = keys ? desc.type_cache : desc.type_out;
  const int block = GetTypeInfo(stored).block_elements;
  if (desc.head_dim % block != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: head_dim = {}, must be a multiple of {} for a cache of {}",
                       desc.head_dim, block, DataTypeName(stored)));
  }
  return Stages<Op>::MarkValidated(desc);
}

Status Tables::Prepare(Args& args, Device& device, Stream stream, std::int64_t positions) {
  const Result<const Table*> table =
      tables_.Find(args.params, args.factors, positions, device, stream);
  if (!table) return Fail(table.error());
  args.table = *table;
  return {};
}

Status CheckRows(const Args& args) {
  if (args.cache.data != nullptr) {
    return CheckPlaces("rope", {args.cache, args.pages, args.positions, args.slots},
                       args.qk.shape[2]);
  }
  const auto* positions = args.positions.as<const std::int32_t>();
  for (std::int64_t row = 0; row < args.qk.shape[2]; ++row) {
    if (positions[row] < -1) {
      return Fail(
          ErrorCode::kInvalidArgument,
          Format("rope: positions[{}] = {}, must be -1 (padding) or more", row, positions[row]));
    }
  }
  return {};
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "rope.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

}  // namespace tilewright::rope

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(rope::Op);
}  // namespace tilewright
