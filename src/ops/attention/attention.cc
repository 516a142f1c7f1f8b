#include "ops/attention/attention.h"

#include <algorithm>
#include <array>
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
  if (desc.rope_dims > 0 && !IsFloatType(desc.type_kv) && desc.type_kv != DataType::kQ8_0) {
    return Rejection{Reason::kType, Format("a cache of {}", DataTypeName(desc.type_kv)),
                     "f64, f32, f16, bf16 or q8_0, to put rows into"};
  }
  return std::nullopt;
}

/// On a CPU turning and writing to caches are calls of their own, of kernels that are fast.
std::optional<Rejection> CpuReferenceFeasible(const Desc& desc) {
  if (auto no = RejectNewRows(desc)) return no;
  return ReferenceFeasible(desc);
}

double ReferenceUs(const Desc& desc) {
  return 10e-3 * desc.rows * desc.heads * desc.head_dim * desc.context;
}

/// Of both kinds of nodes: the caches are inputs `cache` and the next one.
void CheckCommon(const NodeView& node, std::size_t cache, NodeCheck& check) {
  const auto input = [](std::size_t i) { return Format("inputs[{}]", i); };
  const TensorView &q = node.in(0), &keys = node.in(cache);
  check.ExpectFloat("inputs[0]", q.dtype);
  check.ExpectType("out", node.out.dtype, q.dtype);
  check.Expect("out.shape[0]", node.out.shape[0], q.shape[0] * q.shape[1], "head_dim * heads");
  check.Expect("out.shape[1]", node.out.shape[1], q.shape[2], "m");
  check.Expect(input(cache) + ".shape[0]", keys.shape[0], q.shape[0], "head_dim");
  if (check.ok() && q.shape[1] % keys.shape[1] != 0) {
    check.Fault(
        Format("heads = {}, must be a multiple of kv_heads = {}", q.shape[1], keys.shape[1]));
  }
  check.ExpectSameShape(input(cache + 1), node.in(cache + 1), keys);
  check.ExpectType(input(cache + 1), node.in(cache + 1).dtype, keys.dtype);
  for (const std::size_t i : {cache + 2, cache + 3})
    check.ExpectRows(input(i) + ".shape[0]", node.in(i), q.shape[2]);
  for (const std::size_t i : {cache, cache + 1}) {
    if (node.inputs[i].storage != LeafKind::kCache) check.Fault(input(i) + " is not a cache");
  }
  if (!(node.params.attention_scale > 0))
    check.Fault(Format("attention_scale = {}, must be positive", node.params.attention_scale));
  if (node.params.attention_window < 0) {
    check.Fault(Format("attention_window = {}, must be 0 or more", node.params.attention_window));
  }
  if (const float softcap = node.params.softcap; !(softcap >= 0) || !std::isfinite(softcap))
    check.Fault(Format("softcap = {}, must be 0 or positive", softcap));
  if (node.inputs[cache + 4].present)
    check.ExpectType(input(cache + 4), node.in(cache + 4).dtype, DataType::kI32);
}

void CheckNode(const NodeView& node, NodeCheck& check) {
  CheckCommon(node, 1, check);
  const TensorView& q = node.in(0);
  if (node.inputs[6].present) {
    check.ExpectType("inputs[6]", node.in(6).dtype, DataType::kF32);
    check.Expect("inputs[6].shape[0]", node.in(6).shape[0], q.shape[1], "heads");
  }
}

void CheckRopeNode(const NodeView& node, NodeCheck& check) {
  CheckCommon(node, 3, check);
  const TensorView &q = node.in(0), &k = node.in(1);
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
    check.ExpectType(Format("inputs[{}]", i), node.in(i).dtype, q.dtype);
  check.Expect("inputs[1].shape[0]", k.shape[0], q.shape[0], "head_dim");
  check.Expect("inputs[1].shape[1]", k.shape[1], node.in(3).shape[1], "kv_heads");
  check.Expect("inputs[1].shape[2]", k.shape[2], q.shape[2], "rows");
  check.ExpectSameShape("inputs[2]", node.in(2), k);
  const RopeParams& rope = node.params.rope;
  if (rope.dims <= 0 || rope.dims % 2 != 0 || rope.dims > q.shape[0]) {
    check.Fault(Format("rope.dims = {}, must be even, positive and at most head_dim = {}",
                       rope.dims, q.shape[0]));
  }
  if (!(rope.base > 0)) check.Fault(Format("rope.base = {}, must be positive", rope.base));
  if (!node.inputs[8].present) return;
  check.ExpectType("inputs[8]", node.in(8).dtype, DataType::kF32);
  check.Expect("inputs[8].shape[0]", node.in(8).shape[0], rope.dims / 2, "rope.dims / 2");
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kAttention,
                                .name = "attention",
                                .min_inputs = 5,
                                .max_inputs = 7,
                                .check = &CheckNode},
                               {.op = TensorOp::kRopeAttention,
                                .name = "rope_attention",
                                .min_inputs = 7,
                                .max_inputs = 9,
                                .writes = 1u << 3 | 1u << 4,
                                .check = &CheckRopeNode}};

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

/// Keys and values of rows, and what turns them.
Status CheckKeys(const Args& args) {
  if (Status s = CheckView("attention: k", args.k); !s) return s;
  if (Status s = CheckView("attention: v", args.v); !s) return s;
  const std::array<std::int64_t, 4> shape{args.q.shape[0], args.k_cache.shape[1], args.q.shape[2],
                                          1};
  for (const TensorView* rows : {&args.k, &args.v}) {
    if (rows->shape != shape || rows->dtype != args.q.dtype) {
      return Refuse(Format("{} {} {}: must be {} [{}, {}, {}], as q and the caches",
                           rows == &args.k ? "k" : "v", DataTypeName(rows->dtype), ShapeText(*rows),
                           DataTypeName(args.q.dtype), shape[0], shape[1], shape[2]));
    }
  }
  const std::int32_t dims = args.rope.dims;
  if (dims < 2 || dims % 2 != 0 || dims > args.q.shape[0] || dims > rope::kMaxDims) {
    return Refuse(Format("rope.dims = {}, must be even and at most head_dim = {} and {}", dims,
                         args.q.shape[0], rope::kMaxDims));
  }
  if (args.factors.data != nullptr &&
      (args.factors.dtype != DataType::kF32 || args.factors.shape[0] < dims / 2 ||
       args.factors.stride[0] != 1)) {
    return Refuse(Format("factors {} {}, must be {} adjacent f32", DataTypeName(args.factors.dtype),
                         ShapeText(args.factors), dims / 2));
  }
  if (args.table != nullptr && args.table->params() != args.rope)
    return Refuse("the table was made for other parameters");
  return {};
}

}  // namespace

std::optional<Rejection> RejectNewRows(const Desc& desc) {
  if (desc.rope_dims == 0) return std::nullopt;
  return Rejection{Reason::kShape, Format("rope_dims = {}", desc.rope_dims),
                   "queries that are turned, and keys and values in the caches"};
}

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  if (node.op == TensorOp::kRopeAttention) {
    return {.q = node.in(0),
            .k_cache = node.in(3),
            .v_cache = node.in(4),
            .positions = node.in(5),
            .slots = node.in(6),
            .out = node.out,
            .pages = node.in(7),
            .scale = node.params.attention_scale,
            .window = node.params.attention_window,
            .softcap = node.params.softcap,
            .k = node.in(1),
            .v = node.in(2),
            .factors = node.in(8),
            .rope = node.params.rope};
  }
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

Status Tables::Prepare(Args& args, Device& device, Stream stream, std::int64_t) {
  if (!HasKeys(args)) return {};
  const Result<const rope::Table*> table = tables_.Find(args.rope, args.factors, 0, device, stream);
  if (!table) return Fail(table.error());
  args.table = *table;
  return {};
}

Desc ShapeOf(const Args& args, const CallTerms& terms) {
  const CachePlaces places(args.k_cache, args.pages);
  const bool turns = HasKeys(args);
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
              .rope_dims = turns ? args.rope.dims : 0,
              .rope_mode = turns ? args.rope.mode : RopeMode::kInterleaved,
              .precision = terms.activations,
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
  if (HasKeys(args)) {
    if (Status s = CheckKeys(args); !s) return Fail(s.error());
  }
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
  if (desc.rope_dims < 0 || desc.rope_dims % 2 != 0 || desc.rope_dims > desc.head_dim ||
      desc.rope_dims > rope::kMaxDims) {
    return Refuse(Format("rope_dims = {}, must be even and at most head_dim = {} and {}",
                         desc.rope_dims, desc.head_dim, rope::kMaxDims));
  }
  if (desc.rope_dims == 0 && desc.rope_mode != RopeMode::kInterleaved)
    return Refuse("rope_mode = half_split, must be interleaved where rope_dims = 0");
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

namespace {

void AddOracle(Registry& registry, std::optional<Rejection> (*feasible)(const Desc&)) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "attention.any.reference",
      ReferenceOpKernel<Op>::Functions{feasible, &ReferenceUs, &Reference})));
}

}  // namespace

void AddReference(Registry& registry) { AddOracle(registry, &ReferenceFeasible); }

void AddKernels(Registry& registry) {
  AddTiledKernels(registry);
  AddOracle(registry, &CpuReferenceFeasible);
}

}  // namespace tilewright::attention

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(attention::Op);
}  // namespace tilewright
