#include "ops/embedding/embedding.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/block_format.h"
#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "ops/embedding/cpu/gather.h"

namespace tilewright {
namespace {

using CpuEmbedding = FunctionKernel<EmbeddingDesc, EmbeddingArgs, GatherImpl>;

constexpr std::int64_t kGrain = 16384;  // elements of a task

bool IsTableType(DataType type) {
  switch (type) {
    case DataType::kF32: case DataType::kF16: case DataType::kBF16: case DataType::kQ4_0: case DataType::kQ4_1:
    case DataType::kQ8_0: case DataType::kQ6_K: return true;
    default: return false;
  }
}

std::optional<Rejection> Feasible(const GatherImpl&, const EmbeddingDesc& desc) {
  if (desc.type_out != DataType::kF32) {
    return Rejection{Reason::kType, Format("an output of {}", DataTypeName(desc.type_out)), "f32"};
  }
  if (!IsTableType(desc.type_table)) {
    return Rejection{Reason::kType, Format("a table of {}", DataTypeName(desc.type_table)), "f32, f16, bf16 or a GGUF block format"};
  }
  const int block = GetTypeInfo(desc.type_table).block_elements;
  if (desc.cols % block == 0) return std::nullopt;
  return Rejection{Reason::kShape, Format("cols = {}", desc.cols), Format("a multiple of {}", block)};
}

double EstimateUs(const GatherImpl& impl, const EmbeddingDesc& desc, const DeviceSpec&) {
  return static_cast<double>(desc.rows) * desc.cols * impl.ns_per_element * 1e-3;
}

Status CheckIds(const EmbeddingArgs& args) {
  const auto* ids = args.ids.as<const std::int32_t>();
  for (std::int64_t i = 0; i < args.out.shape[1]; ++i) {
    if (ids[i] < 0 || ids[i] >= args.table.shape[1]) {
      return Fail(ErrorCode::kInvalidArgument, Format("embedding: ids[{}] = {}, must be 0 to {}", i, ids[i], args.table.shape[1] - 1));
    }
  }
  return {};
}

Status Launch(const GatherImpl& impl, const EmbeddingArgs& args, Stream stream) {
  const Result<EmbeddingDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (auto no = Feasible(impl, *desc)) return Fail(ErrorCode::kUnsupported, no->ToString());
  if (Status s = CheckIds(args); !s) return s;
  const std::int64_t cols = args.out.cols();
  ParallelRanges(stream.exec(), args.out.shape[1], kGrain / cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      impl.row(args.table.dtype, AddressOf(args.table, args.ids.as<const std::int32_t>()[i] * args.table.stride[1]),
               args.out.as<float>() + i * args.out.stride[1], cols);
    }
  });
  return {};
}

}  // namespace

std::string KeyOf(const EmbeddingDesc& desc) {
  return Format("embedding {}_{} rows={} cols={} threads={}", DataTypeName(desc.type_table), DataTypeName(desc.type_out), desc.rows,
                desc.cols, desc.threads);
}

Result<EmbeddingDesc> DescOf(const EmbeddingArgs& args, int threads) {
  if (Status s = CheckView("embedding: table", args.table); !s) return Fail(s.error());
  if (Status s = CheckView("embedding: out", args.out); !s) return Fail(s.error());
  if (Status s = CheckInts("embedding: ids", args.ids, args.out.shape[1]); !s) return Fail(s.error());
  if (args.table.cols() != args.out.cols() || args.out.shape[2] != 1 || args.out.shape[3] != 1) {
    return Fail(ErrorCode::kInvalidArgument, Format("embedding: out has shape {}, the table {}: rows must have one length",
                                                    ShapeText(args.out), ShapeText(args.table)));
  }
  return EmbeddingDesc{args.table.dtype, args.out.dtype, static_cast<std::int32_t>(args.out.shape[1]),
                       static_cast<std::int32_t>(args.out.cols()), threads};
}

void AddEmbedding(EmbeddingRegistry& registry) {
  const CpuEmbedding::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const GatherImpl* impl : {&kGatherAvx512, &kGatherAvx2, &kGatherScalar}) {
    static_cast<void>(registry.Add(std::make_unique<CpuEmbedding>(
        CpuKernelInfo(Format("embedding.any.{}", impl->isa), impl->tu, impl->features), *impl, shared)));
  }
}

Status ReferenceEmbedding(const EmbeddingArgs& args) {
  const Result<EmbeddingDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (!IsFloatType(args.out.dtype)) {
    return Fail(ErrorCode::kUnsupported, Format("embedding: an output of {}", DataTypeName(args.out.dtype)));
  }
  if (Status s = CheckIds(args); !s) return s;
  std::vector<double> row(static_cast<std::size_t>(args.out.cols()));
  for (std::int64_t i = 0; i < args.out.shape[1]; ++i) {
    const unsigned char* from = AddressOf(args.table, args.ids.as<const std::int32_t>()[i] * args.table.stride[1]);
    if (Status s = DecodeRow(args.table.dtype, from, args.out.cols(), row.data()); !s) return s;
    for (std::size_t c = 0; c < row.size(); ++c) {
      WriteF64(args.out.dtype, args.out.data, i * args.out.stride[1] + static_cast<std::int64_t>(c), row[c]);
    }
  }
  return {};
}

}  // namespace tilewright
