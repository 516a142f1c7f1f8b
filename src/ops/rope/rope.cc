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

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  const bool blocks = desc.scatter && desc.type_out == DataType::kQ8_0;
  if (IsFloatType(desc.type_in) && (IsFloatType(desc.type_out) || blocks)) return std::nullopt;
  return Rejection{
      Reason::kType, Format("{} to {}", DataTypeName(desc.type_in), DataTypeName(desc.type_out)),
      desc.scatter ? "f64, f32, f16 or bf16 into one of them or q8_0" : "f64, f32, f16 or bf16"};
}

double ReferenceUs(const Desc& desc) {
  return static_cast<double>(desc.rows) * desc.heads * desc.head_dim * 50e-3;
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
                                .check = &CheckRopeScatter}};

/// Where the heads go.
Status CheckTarget(const Args& args) {
  if (!IntoCache(args)) {
    if (Status s = CheckView("rope: out", args.out); !s) return s;
    return CheckSameShape("rope: out", args.out, "qk", args.qk);
  }
  if (args.out.data != nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                "rope: out and a cache: one of them must be without data");
  if (Status s = CheckView("rope: cache", args.cache); !s) return s;
  if (Status s = CheckRowsFitCache("rope", args.qk, args.cache); !s) return s;
  if (Status s = CheckInts("rope: slots", args.slots, args.qk.shape[2]); !s) return s;
  return CheckPageTable("rope", args.pages);
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
  const bool scatter = IntoCache(args), paged = scatter && args.pages.data != nullptr;
  return Desc{.type_in = args.qk.dtype,
              .type_out = scatter ? args.cache.dtype : args.out.dtype,
              .mode = args.params.mode,
              .rows = static_cast<std::int32_t>(args.qk.shape[2]),
              .heads = static_cast<std::int32_t>(args.qk.shape[1]),
              .head_dim = static_cast<std::int32_t>(args.qk.shape[0]),
              .dims = dims,
              .scatter = scatter,
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
  if (desc.page_size < 0 || (!desc.scatter && desc.page_size != 0)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("rope: page_size = {}: must be 0 or more, and 0 without a cache", desc.page_size));
  }
  const int block = GetTypeInfo(desc.type_out).block_elements;
  if (desc.head_dim % block != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: head_dim = {}, must be a multiple of {} for a cache of {}",
                       desc.head_dim, block, DataTypeName(desc.type_out)));
  }
  return Stages<Op>::MarkValidated(desc);
}

Status CheckRows(const Args& args) {
  if (IntoCache(args)) {
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
