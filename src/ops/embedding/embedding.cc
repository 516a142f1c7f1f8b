#include "ops/embedding/embedding.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/embedding/checks.h"
#include "ops/embedding/cpu/embedding_cpu.h"

namespace tilewright::embedding {
namespace {

using CpuEmbedding = FunctionKernel<Op, EmbeddingImpl>;

DecodeFunction Decoder(const EmbeddingImpl& impl, DataType type) {
  switch (type) {
    case DataType::kF32:
      return impl.decoders.f32;
    case DataType::kF16:
      return impl.decoders.f16;
    case DataType::kBF16:
      return impl.decoders.bf16;
    default:
      return FindFormat(type) != nullptr
                 ? impl.decoders.blocks[static_cast<int>(type) - kFirstFormat]
                 : nullptr;
  }
}

std::optional<Rejection> Feasible(const EmbeddingImpl& impl, const Desc& desc) {
  if (RowTypeIndex(desc.type_out) < 0 || Decoder(impl, desc.type_table) == nullptr) {
    return Rejection{Reason::kType,
                     Format("{} to {}", DataTypeName(desc.type_table), DataTypeName(desc.type_out)),
                     "f32, f16, bf16 or a block format to f32, f16 or bf16"};
  }
  return std::nullopt;
}

double EstimateUs(const EmbeddingImpl& impl, const Desc& desc, int workers) {
  const double elements = static_cast<double>(desc.rows) * desc.hidden;
  return elements * impl.ns_per_element * 1e-3 / BusyWorkers(elements, kGrainElements, workers) +
         desc.rows * 0.1;
}

constexpr std::int64_t kChunk = kMaxBlockElements;  // elements converted at a time: whole blocks

/// One row of the table, or zeros, to a row of the result.
void PutRow(const EmbeddingImpl& impl, const Args& args, std::int32_t id, std::int64_t to) {
  const DecodeFunction decode = Decoder(impl, args.table.dtype);
  const ConvertRow convert = impl.rows.Find(DataType::kF32, args.out.dtype);
  const std::int64_t hidden = args.out.shape[0], from = id * args.table.stride[1];
  unsigned char* out = MutableAddressOf(args.out, to);
  if (id < 0) {
    std::memset(out, 0, BytesOf(args.out.dtype, hidden));
  } else if (convert == nullptr) {
    decode(AddressOf(args.table, from), reinterpret_cast<float*>(out), hidden);
  } else {
    float values[kChunk];
    for (std::int64_t i = 0; i < hidden; i += kChunk) {
      const std::int64_t n = std::min(kChunk, hidden - i);
      decode(AddressOf(args.table, from + i), values, n);
      convert(values, MutableAddressOf(args.out, to + i), n);
    }
  }
}

Status Launch(const EmbeddingImpl& impl, const Args& args, Stream stream) {
  if (Status status = CheckIds(args); !status) return status;
  const auto* ids = args.ids.as<const std::int32_t>();
  ParallelRanges(stream.exec(), args.out.shape[1],
                 kGrainElements / std::max<std::int64_t>(args.out.shape[0], 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t r = begin; r < end; ++r)
                     PutRow(impl, args, ids[r], r * args.out.stride[1]);
                 });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  if (IsFloatType(desc.type_out) && desc.type_table != DataType::kNone) return std::nullopt;
  return Rejection{Reason::kType,
                   Format("{} to {}", DataTypeName(desc.type_table), DataTypeName(desc.type_out)),
                   "any type to f64, f32, f16 or bf16"};
}

double ReferenceUs(const Desc& desc) {
  return static_cast<double>(desc.rows) * desc.hidden * 10e-3;
}

void CheckNode(const NodeView& node, NodeCheck& check) {
  check.Expect("inputs[0].shape[0]", node.in(0).shape[0], node.out.shape[0], "hidden");
  check.ExpectRows("inputs[1].shape[0]", node.in(1), node.out.shape[1]);
  check.ExpectFloat("out", node.out.dtype);
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kEmbedding,
                                .name = "embedding",
                                .min_inputs = 2,
                                .max_inputs = 2,
                                .check = &CheckNode}};

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  return {.table = node.in(0), .ids = node.in(1), .out = node.out};
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckView("embedding: table", args.table); !s) return Fail(s.error());
  if (Status s = CheckView("embedding: out", args.out); !s) return Fail(s.error());
  const auto is_matrix = [](const TensorView& v) { return v.shape[2] == 1 && v.shape[3] == 1; };
  if (!is_matrix(args.table) || !is_matrix(args.out) || args.out.shape[0] != args.table.shape[0]) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("embedding: table {} to out {}: must be [hidden, entries] to [hidden, rows]",
                       ShapeText(args.table), ShapeText(args.out)));
  }
  if (Status s = CheckInts("embedding: ids", args.ids, args.out.shape[1]); !s)
    return Fail(s.error());
  const int block = GetTypeInfo(args.table.dtype).block_elements;
  if (args.table.shape[0] % block != 0 ||
      (args.table.shape[1] > 1 && args.table.stride[1] % block != 0)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("embedding: hidden = {}, row stride = {}: must be multiples of {} for a table of {}",
               args.table.shape[0], args.table.stride[1], block, DataTypeName(args.table.dtype)));
  }
  return Desc{.type_table = args.table.dtype,
              .type_out = args.out.dtype,
              .rows = static_cast<std::int32_t>(args.out.shape[1]),
              .hidden = static_cast<std::int32_t>(args.out.shape[0]),
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.hidden < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("embedding: rows = {}, hidden = {}: each must be at least 1", desc.rows,
                       desc.hidden));
  }
  const int block = GetTypeInfo(desc.type_table).block_elements;
  if (desc.hidden % block != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("embedding: hidden = {}, must be a multiple of {} for a table of {}",
                       desc.hidden, block, DataTypeName(desc.type_table)));
  }
  return Stages<Op>::MarkValidated(desc);
}

Status CheckIds(const Args& args) {
  const auto* ids = args.ids.as<const std::int32_t>();
  for (std::int64_t r = 0; r < args.out.shape[1]; ++r) {
    if (ids[r] < -1 || ids[r] >= args.table.shape[1]) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("embedding: ids[{}] = {}, the table has {} entries", r, ids[r],
                         args.table.shape[1]));
    }
  }
  return {};
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "embedding.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuEmbedding::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const EmbeddingImpl* impl : {&kEmbeddingScalar, &kEmbeddingAvx2, &kEmbeddingAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuEmbedding>(
        CpuKernelInfo(Format("embedding.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::embedding

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(embedding::Op);
}  // namespace tilewright
