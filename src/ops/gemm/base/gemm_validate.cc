#include <cstdint>
#include <span>

#include "core/formats/formats.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/stage_templates.h"
#include "ops/gemm/base/extent.h"
#include "ops/gemm/base/gemm_op.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

tl::unexpected<Error> Bad(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

template <class E>
bool InRange(E value, E last) {
  return static_cast<unsigned>(value) <= static_cast<unsigned>(last);
}

Status CheckEnums(const GemmDesc& p) {
  constexpr auto kLastType = static_cast<DataType>(kDataTypeCount - 1);
  bool fine = InRange(p.type_a, kLastType) && InRange(p.type_b, kLastType) &&
              InRange(p.type_c, kLastType) && InRange(p.type_u, kLastType) &&
              InRange(p.type_v, kLastType) && InRange(p.type_norm, kLastType);
  fine = fine && InRange(p.order_a, Order::kRowMajor) && InRange(p.order_b, Order::kRowMajor) &&
         InRange(p.order_c, Order::kRowMajor);
  fine = fine && InRange(p.striding_a, Striding::kIndexed) &&
         InRange(p.striding_b, Striding::kIndexed) && InRange(p.striding_c, Striding::kIndexed);
  fine = fine && InRange(p.prologue, Prologue::kRmsNorm) &&
         InRange(p.epilogue, Epilogue::kGatedSilu) && InRange(p.scaling, Scaling::kAny) &&
         InRange(p.batch_dim, BatchDim::kN) && InRange(p.precision, Precision::kW8A8) &&
         InRange(p.guarantee, Guarantee::kBatchInvariant) &&
         InRange(p.quant_a.type, QuantType::kB) && InRange(p.quant_b.type, QuantType::kB);
  if (!fine) return Bad("a field of the problem holds a value that its type does not have");
  if (p.quant_a.reserved != 0 || p.quant_b.reserved != 0)
    return Bad("reserved bytes of quant must be 0");
  return {};
}

Status CheckSizes(const GemmDesc& p) {
  const auto at_least_one = [](std::string_view name, std::int64_t value) -> Status {
    if (value >= 1) return {};
    return Bad(Format("{} = {}: must be at least 1", name, value));
  };
  if (auto s = at_least_one("m", p.m); !s) return s;
  if (auto s = at_least_one("n", p.n); !s) return s;
  if (auto s = at_least_one("k", p.k); !s) return s;
  if (auto s = at_least_one("num", p.num); !s) return s;
  const auto bounded = [](std::string_view name, std::int64_t x, std::int64_t y,
                          std::int64_t count) -> Status {
    if (x <= kMaxElements / y && x * y <= kMaxElements / count) return {};
    return Bad(Format("{} has {} x {} x {} elements: the limit is 2^40", name, count, x, y));
  };
  if (auto s = bounded("A", p.m, p.k, 1); !s) return s;
  if (auto s = bounded("B", p.n, p.k, p.num); !s) return s;
  return bounded("C", p.m, p.n, 1);
}

Status CheckOperandType(std::string_view name, DataType type, Order order, Order along_k,
                        std::int32_t k) {
  if (type == DataType::kNone) return Bad(Format("type_{} = none: must be an element type", name));
  const TypeInfo& info = GetTypeInfo(type);
  if (info.block_elements == 1) return {};
  if (order != along_k) {
    return Bad(Format("type_{} = {}: blocks lie along k, so order_{} must be {}", name, info.name,
                      name, along_k == Order::kRowMajor ? "row-major" : "column-major"));
  }
  if (k % info.block_elements != 0) {
    return Bad(
        Format("k = {}: must be a multiple of {} for {}", k, info.block_elements, info.name));
  }
  return {};
}

Status CheckQuant(std::string_view name, const Quant& quant, std::string_view scale_name,
                  DataType scales, std::int32_t k) {
  if (quant.type == QuantType::kNone) {
    if (quant.group != 0)
      return Bad(Format("quant_{}: group = {} without a type", name, quant.group));
    if (scales != DataType::kNone)
      return Bad(Format("type_{} is given, but quant_{} is none", scale_name, name));
    return {};
  }
  if (quant.group == 0) return Bad(Format("quant_{}: group = 0: must be at least 1", name));
  if (scales == DataType::kNone)
    return Bad(Format("quant_{} is given, but type_{} is none", name, scale_name));
  if (GetTypeInfo(scales).block_elements != 1) {
    return Bad(
        Format("type_{} = {}: scales must be of a plain type", scale_name, DataTypeName(scales)));
  }
  if (k % quant.group != 0)
    return Bad(
        Format("k = {}: must be a multiple of the group of {} of quant_{}", k, quant.group, name));
  return {};
}

Status CheckGroups(const GemmDesc& p) {
  const bool flat = p.striding_a == Striding::kFlat && p.striding_b == Striding::kFlat &&
                    p.striding_c == Striding::kFlat;
  if (p.group_axis < -1 || p.group_axis > 1)
    return Bad(Format("group_axis = {}: must be -1, 0 or 1", p.group_axis));
  if (p.num == 1) return {};
  if (flat)
    return Bad(Format("num = {}: flat striding holds one matrix, use blocked or indexed", p.num));
  if (p.group_axis != static_cast<int>(p.batch_dim)) {
    return Bad(Format("group_axis = {}: with num = {} the groups divide the batch dimension, {}",
                      p.group_axis, p.num, static_cast<int>(p.batch_dim)));
  }
  return {};
}

Status CheckPrologue(const GemmDesc& p) {
  if (p.prologue == Prologue::kNone) {
    if (p.type_norm == DataType::kNone && p.align_norm == 0) return {};
    return Bad("type_norm or align_norm is given, but prologue is none");
  }
  if (!IsFloatType(p.type_norm)) {
    return Bad(Format("type_norm = {}: must be f64, f32, f16 or bf16 with a prologue",
                      DataTypeName(p.type_norm)));
  }
  if (!IsFloatType(p.type_a) || p.quant_a.type != QuantType::kNone)
    return Bad("prologue = rms_norm: A must be of f64, f32, f16 or bf16, without scales");
  if (p.order_a != Order::kRowMajor || p.batch_dim != BatchDim::kM || p.num != 1 ||
      p.pack_a != kPackPlain)
    return Bad("prologue = rms_norm: A must be the activations, row-major, plain and one group");
  return {};
}

Status CheckDesc(const GemmDesc& p) {
  if (auto s = CheckEnums(p); !s) return s;
  if (auto s = CheckSizes(p); !s) return s;
  if (auto s = CheckOperandType("a", p.type_a, p.order_a, Order::kRowMajor, p.k); !s) return s;
  if (auto s = CheckOperandType("b", p.type_b, p.order_b, Order::kColMajor, p.k); !s) return s;
  if (p.type_c == DataType::kNone || GetTypeInfo(p.type_c).block_elements != 1) {
    return Bad(Format("type_c = {}: results must be of a plain type", DataTypeName(p.type_c)));
  }
  if (auto s = CheckQuant("a", p.quant_a, "u", p.type_u, p.k); !s) return s;
  if (auto s = CheckQuant("b", p.quant_b, "v", p.type_v, p.k); !s) return s;
  if (auto s = CheckGroups(p); !s) return s;
  if (p.epilogue == Epilogue::kGatedSilu && p.n % (2 * kGatedBlock) != 0) {
    return Bad(Format("n = {}: gated_silu needs a multiple of {}", p.n, 2 * kGatedBlock));
  }
  if (auto s = CheckPrologue(p); !s) return s;
  if (p.pack_a == kPackAny)
    return Bad("pack_a = any: only weights are packed, pack_a must name a layout");
  return {};
}

Status CheckLayout(std::string_view name, const MatrixLayout& layout, std::int64_t rows,
                   std::int64_t cols) {
  if (layout.rows != rows || layout.cols != cols) {
    return Bad(Format("{} is {} x {}: the problem has {} x {}", name, layout.rows, layout.cols,
                      rows, cols));
  }
  if (layout.pack != kPackPlain) return {};  // a packed layout has no leading dimension
  const bool row_major = layout.order == Order::kRowMajor;
  const std::int64_t length = row_major ? cols : rows, lines = row_major ? rows : cols;
  if (layout.ld < length) {
    return Bad(Format("ld of {} = {}: must be at least {}, its {}", name, layout.ld, length,
                      row_major ? "columns" : "rows"));
  }
  const int block = GetTypeInfo(layout.type).block_elements;
  if (layout.ld % block != 0) {
    return Bad(Format("ld of {} = {}: must be a multiple of {} for {}", name, layout.ld, block,
                      DataTypeName(layout.type)));
  }
  if (layout.ld > kMaxElements / lines) {
    return Bad(
        Format("ld of {} = {}: {} lines of it exceed 2^40 elements", name, layout.ld, lines));
  }
  return {};
}

Status CheckOffsets(std::string_view name, const MatrixLayout& layout, std::int32_t num,
                    std::int32_t batch) {
  if (layout.offsets == nullptr) return Bad(Format("{} has {} groups but no offsets", name, num));
  if (layout.offsets[0] != 0)
    return Bad(Format("offsets[0] of {} = {}: must be 0", name, layout.offsets[0]));
  for (std::int32_t g = 0; g < num; ++g) {
    if (layout.offsets[g + 1] < layout.offsets[g]) {
      return Bad(Format("offsets[{}] of {} = {}: smaller than the one before, {}", g + 1, name,
                        layout.offsets[g + 1], layout.offsets[g]));
    }
  }
  if (layout.offsets[num] != batch) {
    return Bad(Format("offsets[{}] of {} = {}: must be the number of rows, {}", num, name,
                      layout.offsets[num], batch));
  }
  return {};
}

Striding StridingOf(const MatrixLayout& layout) {
  if (layout.idxs != nullptr) return Striding::kIndexed;
  return layout.num > 1 ? Striding::kBlocked : Striding::kFlat;
}

Scaling ScalingOf(float alpha, float beta) {
  if (alpha == 1.0f && beta == 0.0f) return Scaling::kOneZero;
  if (alpha == 1.0f && beta == 1.0f) return Scaling::kOneOne;
  return Scaling::kAny;
}

std::uint8_t AlignmentOf(const void* data, const MatrixLayout& layout) {
  const auto line = static_cast<std::uintptr_t>(BytesOf(layout.type, layout.ld));
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(data) | line;
  std::uint8_t log2 = 0;
  while (log2 < 6 && (bits >> log2 & 1) == 0) ++log2;
  return log2;
}

Status CheckPointers(const GemmDesc& p, const GemmArgs& args) {
  if (args.a == nullptr) return Bad("a is a null pointer");
  if (args.b == nullptr) return Bad("b is a null pointer");
  if (args.d == nullptr) return Bad("d is a null pointer");
  if (args.beta != 0.0f && args.c == nullptr)
    return Bad(Format("c is a null pointer, but beta = {}", args.beta));
  if (p.quant_a.type != QuantType::kNone && args.u == nullptr)
    return Bad("quant_a is given, but u is a null pointer");
  if (p.prologue != Prologue::kNone && args.norm == nullptr)
    return Bad("prologue = rms_norm, but norm is a null pointer");
  if (p.prologue != Prologue::kNone && !(args.epsilon >= 0))
    return Bad(Format("epsilon = {}: must be 0 or more", args.epsilon));
  if (p.quant_b.type != QuantType::kNone && args.v == nullptr)
    return Bad("quant_b is given, but v is a null pointer");
  return {};
}

Status CheckArgs(const GemmDesc& p, const GemmArgs& args) {
  if (auto s = CheckPointers(p, args); !s) return s;
  const std::int64_t d_cols = p.epilogue == Epilogue::kGatedSilu ? p.n / 2 : p.n;
  if (auto s = CheckLayout("A", args.a_layout, p.m, p.k); !s) return s;
  // b then points to StridedPtr, each with its own ld.
  const bool grouped_pointers = p.num > 1 && args.b_layout.ld == 0;
  if (!grouped_pointers) {
    if (auto s = CheckLayout("B", args.b_layout, p.k, p.n); !s) return s;
  }
  if (auto s = CheckLayout("D", args.d_layout, p.m, d_cols); !s) return s;
  if (args.beta != 0.0f) {
    if (auto s = CheckLayout("C", args.c_layout, p.m, d_cols); !s) return s;
    if (args.c_layout.type != args.d_layout.type || args.c_layout.order != args.d_layout.order) {
      return Bad("C and D must agree in type and order");
    }
  }
  if (p.num > 1) {
    if (auto s = CheckOffsets("A", args.a_layout, p.num, BatchOf(p)); !s) return s;
    return CheckOffsets("D", args.d_layout, p.num, BatchOf(p));
  }
  if (p.striding_a == Striding::kIndexed || p.striding_c == Striding::kIndexed) return {};
  const Extent d = ExtentOf(args.d, args.d_layout, p.m);
  if (Overlap(d, ExtentOf(args.a, args.a_layout, p.m))) return Bad("D overlaps A");
  if (args.b_layout.pack == kPackPlain && Overlap(d, ExtentOf(args.b, args.b_layout, p.k)))
    return Bad("D overlaps B");
  if (args.beta != 0.0f && args.c != args.d && Overlap(d, ExtentOf(args.c, args.c_layout, p.m))) {
    return Bad("D overlaps C: it may be C, or lie apart from it");
  }
  if (args.beta != 0.0f && args.c == args.d && args.c_layout.ld != args.d_layout.ld) {
    return Bad(
        Format("D is C, but their ld differ: {} and {}", args.d_layout.ld, args.c_layout.ld));
  }
  return {};
}

}  // namespace

Result<CheckedGemm> Validate(const GemmDesc& desc) {
  if (auto s = CheckDesc(desc); !s) return Fail(std::move(s.error()));
  return Stages<GemmOp>::MarkValidated(desc);
}

Result<CheckedGemm> Validate(const Operation& operation, const GemmArgs& args,
                             const ValidateOptions& options) {
  GemmDesc p;
  p.m = args.a_layout.rows, p.n = args.b_layout.cols, p.k = args.a_layout.cols;
  p.num = args.a_layout.num;
  p.type_a = args.a_layout.type, p.type_b = args.b_layout.type, p.type_c = args.d_layout.type;
  p.order_a = args.a_layout.order, p.order_b = args.b_layout.order, p.order_c = args.d_layout.order;
  p.striding_a = StridingOf(args.a_layout), p.striding_c = StridingOf(args.d_layout);
  p.striding_b = p.num > 1 ? Striding::kBlocked : Striding::kFlat;
  p.quant_a = operation.quant_a, p.quant_b = operation.quant_b;
  if (p.quant_a.type != QuantType::kNone) p.type_u = args.u_layout.type;
  if (p.quant_b.type != QuantType::kNone) p.type_v = args.v_layout.type;
  p.pack_a = args.a_layout.pack, p.pack_b = args.b_layout.pack;
  p.epilogue = operation.epilogue;
  p.prologue = operation.prologue;
  if (p.prologue != Prologue::kNone) p.type_norm = args.type_norm;
  p.scaling = ScalingOf(args.alpha, args.beta);
  p.batch_dim = operation.batch_dim;
  p.precision = operation.precision;
  p.guarantee = operation.guarantee;
  if (p.num > 1) p.group_axis = static_cast<std::int8_t>(p.batch_dim);
  if (auto s = CheckDesc(p); !s) return Fail(std::move(s.error()));
  if (auto s = CheckArgs(p, args); !s) return Fail(std::move(s.error()));
  if (options.promise_alignment) {
    p.align_a = AlignmentOf(args.a, args.a_layout);
    p.align_b =
        p.pack_b == kPackPlain && args.b_layout.ld > 0 ? AlignmentOf(args.b, args.b_layout) : 6;
    p.align_c = AlignmentOf(args.d, args.d_layout);
    if (p.prologue != Prologue::kNone)
      p.align_norm = AlignmentOf(args.norm, {.type = p.type_norm, .ld = 0});
  }
  return Stages<GemmOp>::MarkValidated(p);
}

}  // namespace tilewright
