#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/paged_cache.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/attention/checks.h"
#include "ops/attention/cpu/tiled.h"

namespace tilewright::attention {
namespace {

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  if (!IsFloatType(desc.type_q)) {
    return Rejection{Reason::kType, Format("q of type {}", DataTypeName(desc.type_q)),
                     "f64, f32, f16 or bf16"};
  }
  if (desc.type_kv == DataType::kNone) return Rejection{Reason::kType, "a cache of none", "a type"};
  return std::nullopt;
}

double ReferenceUs(const Desc& desc) {
  return 10e-3 * desc.rows * desc.heads * desc.head_dim * desc.context;
}

void CheckNode(const NodeView& node, NodeCheck& check) {
  const TensorView &q = node.in(0), &keys = node.in(1);
  check.ExpectFloat("inputs[0]", q.dtype);
  check.ExpectType("out", node.out.dtype, q.dtype);
  check.Expect("out.shape[0]", node.out.shape[0], q.shape[0] * q.shape[1], "head_dim * heads");
  check.Expect("out.shape[1]", node.out.shape[1], q.shape[2], "m");
  check.Expect("inputs[1].shape[0]", keys.shape[0], q.shape[0], "head_dim");
  if (check.ok() && q.shape[1] % keys.shape[1] != 0) {
    check.Fault(
        Format("heads = {}, must be a multiple of kv_heads = {}", q.shape[1], keys.shape[1]));
  }
  check.ExpectSameShape("inputs[2]", node.in(2), keys);
  check.ExpectType("inputs[2]", node.in(2).dtype, keys.dtype);
  check.ExpectRows("inputs[3].shape[0]", node.in(3), q.shape[2]);
  check.ExpectRows("inputs[4].shape[0]", node.in(4), q.shape[2]);
  for (std::size_t i = 1; i <= 2; ++i) {
    if (node.inputs[i].storage != LeafKind::kCache)
      check.Fault(Format("inputs[{}] is not a cache", i));
  }
  if (!(node.params.attention_scale > 0))
    check.Fault(Format("attention_scale = {}, must be positive", node.params.attention_scale));
  if (node.params.attention_window < 0) {
    check.Fault(Format("attention_window = {}, must be 0 or more", node.params.attention_window));
  }
  if (const float softcap = node.params.softcap; !(softcap >= 0) || !std::isfinite(softcap))
    check.Fault(Format("softcap = {}, must be 0 or positive", softcap));
  if (node.inputs[5].present) check.ExpectType("inputs[5]", node.in(5).dtype, DataType::kI32);
  if (node.inputs[6].present) {
    check.ExpectType("inputs[6]", node.in(6).dtype, DataType::kF32);
    check.Expect("inputs[6].shape[0]", node.in(6).shape[0], q.shape[1], "heads");
  }
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kAttention,
                                .name = "attention",
                                .min_inputs = 5,
                                .max_inputs = 7,
                                .check = &CheckNode}};

tl::unexpected<Error> Refuse(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, "attention: " + std::move(message));
}

/// The caches and their page table fit each other and q.
Status CheckCaches(const Args& args) {
  const TensorView &q = args.q, &keys = args.k_cache, &values = args.v_cache;
  if (keys.shape[0] != q.shape[0] || keys.shape[1] < 1 || q.shape[1] % keys.shape[1] != 0) {
    return Refuse(
        Format("q {} over k_cache {}: head_dim must agree, heads be a multiple of kv_heads",
               ShapeText(q), ShapeText(keys)));
  }
  if (values.shape != keys.shape || values.stride != keys.stride || values.dtype != keys.dtype) {
    return Refuse(Format("v_cache {} {}: must be laid out as k_cache, {} {}",
                         DataTypeName(values.dtype), ShapeText(values), DataTypeName(keys.dtype),
                         ShapeText(keys)));
  }
  const int block = GetTypeInfo(keys.dtype).block_elements;
  for (int d = 1; d < 4; ++d) {
    if (keys.shape[d] > 1 && keys.stride[d] % block != 0) {
      return Refuse(
          Format("k_cache.stride[{}] = {}, must be a multiple of {}", d, keys.stride[d], block));
    }
  }
  return CheckPageTable("attention", args.pages);
}

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  return {.q = node.in(0),
          .k_cache = node.in(1),
          .v_cache = node.in(2),
          .positions = node.in(3),
          .slots = node.in(4),
          .out = node.out,
          .pages = node.in(5),
          .scale = node.params.attention_scale,
          .window = node.params.attention_window,
          .softcap = node.params.softcap,
          .sinks = node.in(6)};
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Desc ShapeOf(const Args& args, const CallTerms& terms) {
  const CachePlaces places(args.k_cache, args.pages);
  return Desc{.type_q = args.q.dtype,
              .type_kv = args.k_cache.dtype,
              .rows = static_cast<std::int32_t>(args.q.shape[2]),
              .sequences = static_cast<std::int32_t>(places.slots()),
              .context = static_cast<std::int32_t>(places.context()),
              .page_size = places.paged() ? static_cast<std::int32_t>(args.k_cache.shape[2]) : 0,
              .window = args.window,
              .soft_capped = args.softcap > 0,
              .sinks = args.sinks.data != nullptr,
              .heads = static_cast<std::int32_t>(args.q.shape[1]),
              .kv_heads = static_cast<std::int32_t>(args.k_cache.shape[1]),
              .head_dim = static_cast<std::int32_t>(args.q.shape[0]),
              .guarantee = terms.guarantee};
}

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckView("attention: q", args.q); !s) return Fail(s.error());
  if (Status s = CheckView("attention: k_cache", args.k_cache); !s) return Fail(s.error());
  if (Status s = CheckView("attention: v_cache", args.v_cache); !s) return Fail(s.error());
  if (Status s = CheckView("attention: out", args.out); !s) return Fail(s.error());
  const TensorView &q = args.q, &out = args.out;
  if (q.shape[3] != 1 || out.shape[0] != q.shape[0] * q.shape[1] || out.shape[1] != q.shape[2] ||
      out.shape[2] != 1 || out.shape[3] != 1 || out.dtype != q.dtype) {
    return Refuse(
        Format("q {} {} to out {} {}: must be [head_dim, heads, rows] to [head_dim * "
               "heads, rows] of one type",
               DataTypeName(q.dtype), ShapeText(q), DataTypeName(out.dtype), ShapeText(out)));
  }
  if (Status s = CheckInts("attention: positions", args.positions, q.shape[2]); !s)
    return Fail(s.error());
  if (Status s = CheckInts("attention: slots", args.slots, q.shape[2]); !s) return Fail(s.error());
  if (!(args.softcap >= 0) || !std::isfinite(args.softcap))
    return Refuse(Format("softcap = {}, must be 0 or positive", args.softcap));
  if (args.sinks.data != nullptr &&
      (args.sinks.dtype != DataType::kF32 || args.sinks.elements() != q.shape[1] ||
       !IsContiguous(args.sinks))) {
    return Refuse(Format("sinks {} {}: must be an adjacent f32 for each of {} heads",
                         DataTypeName(args.sinks.dtype), ShapeText(args.sinks), q.shape[1]));
  }
  if (Status s = CheckCaches(args); !s) return Fail(s.error());
  return ShapeOf(args, terms);
}

Result<Checked<Op>> Validate(const Desc& desc) {
  const std::pair<std::string_view, std::int32_t> sizes[] = {
      {"rows", desc.rows},   {"sequences", desc.sequences}, {"context", desc.context},
      {"heads", desc.heads}, {"kv_heads", desc.kv_heads},   {"head_dim", desc.head_dim}};
  for (const auto& [name, size] : sizes) {
    if (size < 1) return Refuse(Format("{} = {}, must be at least 1", name, size));
  }
  if (desc.page_size < 0)
    return Refuse(Format("page_size = {}, must be 0 or more", desc.page_size));
  if (desc.window < 0) return Refuse(Format("window = {}, must be 0 or more", desc.window));
  if (desc.heads % desc.kv_heads != 0) {
    return Refuse(
        Format("heads = {}, must be a multiple of kv_heads = {}", desc.heads, desc.kv_heads));
  }
  const int block = GetTypeInfo(desc.type_kv).block_elements;
  if (desc.head_dim % block != 0) {
    return Refuse(Format("head_dim = {}, must be a multiple of {} for a cache of {}", desc.head_dim,
                         block, DataTypeName(desc.type_kv)));
  }
  return Stages<Op>::MarkValidated(desc);
}

Status CheckRows(const Args& args) {
  const CachePlaces places(args.k_cache, args.pages);
  const auto* positions = args.positions.as<const std::int32_t>();
  const auto* slots = args.slots.as<const std::int32_t>();
  std::int64_t first = 0, checked = 0;  // pages of the sequence of the row before that are fine
  for (std::int64_t r = 0; r < args.q.shape[2]; ++r) {
    if (r > 0 && slots[r] != slots[r - 1]) first = checked = 0;
    if (positions[r] == -1) continue;  // padding
    if (positions[r] < 0 || positions[r] >= places.context()) {
      return Fail(ErrorCode::kInvalidArgument, Format("positions[{}] = {}, must be 0 to {}", r,
                                                      positions[r], places.context() - 1));
    }
    if (slots[r] < 0 || slots[r] >= places.slots()) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("slots[{}] = {}, must be 0 to {}", r, slots[r], places.slots() - 1));
    }
    if (!places.paged()) continue;
    const std::int64_t page_size = args.k_cache.shape[2];
    const std::int64_t from = FirstSeen(positions[r], args.window) / page_size;
    if (from < first || from > checked) first = checked = from;
    for (; checked <= positions[r] / page_size; ++checked) {
      const std::int32_t page = places.PagesOf(slots[r])[checked];
      if (page < 0 || page >= places.physical_pages()) {
        return Fail(ErrorCode::kInvalidArgument,
                    Format("pages[{}, {}] = {}, must be 0 to {}", checked, slots[r], page,
                           places.physical_pages() - 1));
      }
    }
  }
  return {};
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "attention.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  AddTiledKernels(registry);
  AddReference(registry);
}

}  // namespace tilewright::attention

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(attention::Op);
}  // namespace tilewright
