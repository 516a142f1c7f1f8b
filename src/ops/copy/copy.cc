#include "ops/copy/copy.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/block_format.h"
#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "ops/copy/cpu/convert.h"

namespace tilewright {
namespace {

using CpuCopy = FunctionKernel<CopyDesc, CopyArgs, ConvertImpl>;
using CpuKvScatter = FunctionKernel<KvScatterDesc, KvScatterArgs, ConvertImpl>;

/// Elements of a task: less is not worth handing to another thread.
constexpr std::int64_t kGrain = 65536;

std::optional<Rejection> RejectPair(DataType from, DataType to) {
  if (ConvertTakes(from, to)) return std::nullopt;
  return Rejection{Reason::kType, Format("{} to {}", DataTypeName(from), DataTypeName(to)), "f32, f16 or bf16, or f32 to q8_0"};
}

// Copy ------------------------------------------------------------------------------------------------------------------------

std::optional<Rejection> CopyFeasible(const ConvertImpl&, const CopyDesc& desc) {
  if (desc.type_dst == DataType::kQ8_0 && desc.cols % 32 != 0) {
    return Rejection{Reason::kShape, Format("cols = {}", desc.cols), "a multiple of 32 for q8_0"};
  }
  return RejectPair(desc.type_src, desc.type_dst);
}

double CopyEstimate(const ConvertImpl& impl, const CopyDesc& desc, const DeviceSpec&) {
  return static_cast<double>(desc.rows) * desc.cols * impl.ns_per_element * 1e-3;
}

Status CopyLaunch(const ConvertImpl& impl, const CopyArgs& args, Stream stream) {
  const Result<CopyDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (auto no = CopyFeasible(impl, *desc)) return Fail(ErrorCode::kUnsupported, no->ToString());
  const std::int64_t cols = args.src.cols();
  ParallelRanges(stream.exec(), RowCount(args.src), kGrain / std::max<std::int64_t>(cols, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     impl.convert(args.src.dtype, args.dst.dtype, AddressOf(args.src, RowOffset(args.src, row)),
                                  MutableAddressOf(args.dst, RowOffset(args.dst, row)), cols);
                   }
                 });
  return {};
}

class ReferenceCopyKernel final : public CopyKernel {
 public:
  ReferenceCopyKernel() : CopyKernel(Info()) {}
  std::optional<Rejection> IsFeasible(const CopyDesc& desc) const override {
    if (IsFloatType(desc.type_src) && IsFloatType(desc.type_dst)) return std::nullopt;
    return Rejection{Reason::kType, Format("{} to {}", DataTypeName(desc.type_src), DataTypeName(desc.type_dst)),
                     "f64, f32, f16 or bf16 on both sides"};
  }
  double EstimateUs(const CopyDesc& desc, const DeviceSpec&) const override {
    return static_cast<double>(desc.rows) * desc.cols * 10e-3;
  }
  Status Launch(const CopyArgs& args, Stream) const override { return ReferenceCopy(args); }

 private:
  static KernelInfo Info() {
    KernelInfo info = CpuKernelInfo("copy.any.reference", "", 0);
    info.fingerprint = "reference";
    info.reference = true;
    return info;
  }
};

// KV scatter ------------------------------------------------------------------------------------------------------------------

std::optional<Rejection> ScatterFeasible(const ConvertImpl&, const KvScatterDesc& desc) {
  if (desc.type_cache == DataType::kQ8_0 && desc.head_dim % 32 != 0) {
    return Rejection{Reason::kShape, Format("head_dim = {}", desc.head_dim), "a multiple of 32 for q8_0"};
  }
  return RejectPair(desc.type_src, desc.type_cache);
}

double ScatterEstimate(const ConvertImpl& impl, const KvScatterDesc& desc, const DeviceSpec&) {
  return static_cast<double>(desc.rows) * desc.kv_heads * desc.head_dim * impl.ns_per_element * 1e-3;
}

Status CheckPlaces(const KvScatterArgs& args) {
  const auto* positions = args.positions.as<const std::int32_t>();
  const auto* slots = args.slots.as<const std::int32_t>();
  for (std::int64_t r = 0; r < args.src.shape[2]; ++r) {
    if (positions[r] < 0 || positions[r] >= args.cache.shape[2]) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("kv scatter: positions[{}] = {}, must be 0 to {}", r, positions[r], args.cache.shape[2] - 1));
    }
    if (slots[r] < 0 || slots[r] >= args.cache.shape[3]) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("kv scatter: slots[{}] = {}, must be 0 to {}", r, slots[r], args.cache.shape[3] - 1));
    }
  }
  return {};
}

/// Element offset in the cache of head `head` of row `row`.
std::int64_t PlaceOf(const KvScatterArgs& args, std::int64_t row, std::int64_t head) {
  return head * args.cache.stride[1] + args.positions.as<const std::int32_t>()[row] * args.cache.stride[2] +
         args.slots.as<const std::int32_t>()[row] * args.cache.stride[3];
}

Status ScatterLaunch(const ConvertImpl& impl, const KvScatterArgs& args, Stream stream) {
  const Result<KvScatterDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (auto no = ScatterFeasible(impl, *desc)) return Fail(ErrorCode::kUnsupported, no->ToString());
  if (Status s = CheckPlaces(args); !s) return s;
  const std::int64_t head_dim = args.src.shape[0], heads = args.src.shape[1];
  ParallelRanges(stream.exec(), args.src.shape[2], kGrain / (head_dim * heads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t head = 0; head < heads; ++head) {
        impl.convert(args.src.dtype, args.cache.dtype, AddressOf(args.src, row * args.src.stride[2] + head * args.src.stride[1]),
                     MutableAddressOf(args.cache, PlaceOf(args, row, head)), head_dim);
      }
    }
  });
  return {};
}

}  // namespace

bool ConvertTakes(DataType from, DataType to) {
  auto plain = [](DataType type) { return type == DataType::kF32 || type == DataType::kF16 || type == DataType::kBF16; };
  return (plain(from) && plain(to)) || (from == DataType::kF32 && to == DataType::kQ8_0);
}

std::string KeyOf(const CopyDesc& desc) {
  return Format("copy {}_{} rows={} cols={} threads={}", DataTypeName(desc.type_src), DataTypeName(desc.type_dst), desc.rows, desc.cols,
                desc.threads);
}

std::string KeyOf(const KvScatterDesc& desc) {
  return Format("kv_scatter {}_{} rows={} kv_heads={} head_dim={} threads={}", DataTypeName(desc.type_src),
                DataTypeName(desc.type_cache), desc.rows, desc.kv_heads, desc.head_dim, desc.threads);
}

Result<CopyDesc> DescOf(const CopyArgs& args, int threads) {
  if (Status s = CheckView("copy: src", args.src); !s) return Fail(s.error());
  if (Status s = CheckView("copy: dst", args.dst); !s) return Fail(s.error());
  if (Status s = CheckSameShape("copy: dst", args.dst, "src", args.src); !s) return Fail(s.error());
  return CopyDesc{args.src.dtype, args.dst.dtype, static_cast<std::int32_t>(RowCount(args.src)),
                  static_cast<std::int32_t>(args.src.cols()), threads};
}

Result<KvScatterDesc> DescOf(const KvScatterArgs& args, int threads) {
  if (Status s = CheckView("kv scatter: src", args.src); !s) return Fail(s.error());
  if (Status s = CheckView("kv scatter: cache", args.cache); !s) return Fail(s.error());
  if (Status s = CheckInts("kv scatter: positions", args.positions, args.src.shape[2]); !s) return Fail(s.error());
  if (Status s = CheckInts("kv scatter: slots", args.slots, args.src.shape[2]); !s) return Fail(s.error());
  if (args.src.shape[0] != args.cache.shape[0] || args.src.shape[1] != args.cache.shape[1] || args.src.shape[3] != 1) {
    return Fail(ErrorCode::kInvalidArgument, Format("kv scatter: src has shape {}, the cache {}: head_dim and kv_heads must agree",
                                                    ShapeText(args.src), ShapeText(args.cache)));
  }
  return KvScatterDesc{args.src.dtype, args.cache.dtype, static_cast<std::int32_t>(args.src.shape[2]),
                       static_cast<std::int32_t>(args.src.shape[1]), static_cast<std::int32_t>(args.src.shape[0]), threads};
}

void AddCopy(CopyRegistry& registry) {
  const CpuCopy::Shared shared{&CopyFeasible, &CopyEstimate, &CopyLaunch};
  for (const ConvertImpl* impl : {&kConvertAvx512, &kConvertAvx2, &kConvertScalar}) {
    static_cast<void>(registry.Add(
        std::make_unique<CpuCopy>(CpuKernelInfo(Format("copy.any.{}", impl->isa), impl->tu, impl->features), *impl, shared)));
  }
  static_cast<void>(registry.Add(std::make_unique<ReferenceCopyKernel>()));
}

void AddKvScatter(KvScatterRegistry& registry) {
  const CpuKvScatter::Shared shared{&ScatterFeasible, &ScatterEstimate, &ScatterLaunch};
  for (const ConvertImpl* impl : {&kConvertAvx512, &kConvertAvx2, &kConvertScalar}) {
    static_cast<void>(registry.Add(std::make_unique<CpuKvScatter>(
        CpuKernelInfo(Format("kv_scatter.any.{}", impl->isa), impl->tu, impl->features), *impl, shared)));
  }
}

Status ReferenceCopy(const CopyArgs& args) {
  const Result<CopyDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (!IsFloatType(args.src.dtype) || !IsFloatType(args.dst.dtype)) {
    return Fail(ErrorCode::kUnsupported,
                Format("copy: {} to {}: float types only", DataTypeName(args.src.dtype), DataTypeName(args.dst.dtype)));
  }
  for (std::int64_t row = 0; row < RowCount(args.src); ++row) {
    for (std::int64_t i = 0; i < args.src.cols(); ++i) {
      WriteF64(args.dst.dtype, args.dst.data, RowOffset(args.dst, row) + i,
               ReadF64(args.src.dtype, args.src.data, RowOffset(args.src, row) + i));
    }
  }
  return {};
}

Status ReferenceKvScatter(const KvScatterArgs& args) {
  const Result<KvScatterDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (Status s = CheckPlaces(args); !s) return s;
  const std::int64_t head_dim = args.src.shape[0];
  const bool blocks = args.cache.dtype == DataType::kQ8_0;
  if (!IsFloatType(args.src.dtype) || !(IsFloatType(args.cache.dtype) || blocks)) {
    return Fail(ErrorCode::kUnsupported,
                Format("kv scatter: {} into a cache of {}", DataTypeName(args.src.dtype), DataTypeName(args.cache.dtype)));
  }
  std::vector<float> head(static_cast<std::size_t>(head_dim));
  for (std::int64_t row = 0; row < args.src.shape[2]; ++row) {
    for (std::int64_t h = 0; h < args.src.shape[1]; ++h) {
      const std::int64_t from = row * args.src.stride[2] + h * args.src.stride[1], to = PlaceOf(args, row, h);
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const double value = ReadF64(args.src.dtype, args.src.data, from + d);
        if (blocks) head[static_cast<std::size_t>(d)] = static_cast<float>(value);
        else WriteF64(args.cache.dtype, args.cache.data, to + d, value);
      }
      if (!blocks) continue;
      if (Status s = EncodeRow(args.cache.dtype, head.data(), head_dim, MutableAddressOf(args.cache, to)); !s) return s;
    }
  }
  return {};
}

}  // namespace tilewright
