#include <algorithm>
#include <cstring>
#include <memory>

#include "core/block_format.h"
#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "ops/copy/checks.h"
#include "ops/copy/cpu/copy_cpu.h"

namespace tilewright {
namespace {

using CpuKvScatter = FunctionKernel<KvScatterDesc, KvScatterArgs, CopyImpl>;

constexpr std::int64_t kGrain = 32768;  // elements of a task

std::optional<Rejection> Feasible(const CopyImpl&, const KvScatterDesc& desc) {
  const bool cache_ok = CopyTypeIndex(desc.type_cache) >= 0 || desc.type_cache == DataType::kQ8_0;
  if (desc.type_x != DataType::kF32 || !cache_ok) {
    return Rejection{Reason::kType,
                     Format("{} into {}", DataTypeName(desc.type_x), DataTypeName(desc.type_cache)),
                     "f32 into f32, f16, bf16 or q8_0"};
  }
  return std::nullopt;
}

double EstimateUs(const CopyImpl& impl, const KvScatterDesc& desc, const DeviceSpec&) {
  const double elements = static_cast<double>(desc.rows) * desc.kv_heads * desc.head_dim;
  const double threads =
      std::clamp(elements / static_cast<double>(kGrain), 1.0, static_cast<double>(desc.threads));
  return elements * impl.ns_per_element * 1e-3 / threads;
}

/// `n` adjacent elements; multiples of 32 for q8_0.
void Put(const CopyImpl& impl, const KvScatterArgs& args, std::int64_t from, std::int64_t to,
         std::int64_t n) {
  const float* src = args.x.as<const float>() + from;
  unsigned char* dst = MutableAddressOf(args.cache, to);
  if (args.cache.dtype == DataType::kQ8_0) {
    impl.encode_q8_0(src, dst, n);
  } else if (args.cache.dtype == DataType::kF32) {
    std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float));
  } else {
    impl.convert[CopyTypeIndex(DataType::kF32)][CopyTypeIndex(args.cache.dtype)](src, dst, n);
  }
}

Status Launch(const CopyImpl& impl, const KvScatterArgs& args, Stream stream) {
  const Result<KvScatterDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (auto no = Feasible(impl, *desc)) return Fail(ErrorCode::kUnsupported, no->ToString());
  if (Status status = CheckPlaces(args); !status) return status;
  const std::int64_t head_dim = desc->head_dim, heads = desc->kv_heads;
  const bool one_run =
      heads == 1 || (args.x.stride[1] == head_dim && args.cache.stride[1] == head_dim);
  const auto* positions = args.positions.as<const std::int32_t>();
  const auto* slots = args.slots.as<const std::int32_t>();
  ParallelRanges(stream.exec(), desc->rows, kGrain / std::max<std::int64_t>(head_dim * heads, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t r = begin; r < end; ++r) {
                     const std::int64_t from = r * args.x.stride[2];
                     const std::int64_t to =
                         positions[r] * args.cache.stride[2] + slots[r] * args.cache.stride[3];
                     if (one_run) {
                       Put(impl, args, from, to, head_dim * heads);
                       continue;
                     }
                     for (std::int64_t h = 0; h < heads; ++h) {
                       Put(impl, args, from + h * args.x.stride[1], to + h * args.cache.stride[1],
                           head_dim);
                     }
                   }
                 });
  return {};
}

class ReferenceKernel final : public KvScatterKernel {
 public:
  ReferenceKernel() : KvScatterKernel(Info()) {}
  std::optional<Rejection> IsFeasible(const KvScatterDesc& desc) const override {
    if (IsFloatType(desc.type_x) &&
        (IsFloatType(desc.type_cache) || desc.type_cache == DataType::kQ8_0)) {
      return std::nullopt;
    }
    return Rejection{Reason::kType,
                     Format("{} into {}", DataTypeName(desc.type_x), DataTypeName(desc.type_cache)),
                     "a float type into f64, f32, f16, bf16 or q8_0"};
  }
  double EstimateUs(const KvScatterDesc& desc, const DeviceSpec&) const override {
    return static_cast<double>(desc.rows) * desc.kv_heads * desc.head_dim * 5e-3;
  }
  Status Launch(const KvScatterArgs& args, Stream) const override {
    return ReferenceKvScatter(args);
  }

 private:
  static KernelInfo Info() {
    KernelInfo info = CpuKernelInfo("kv_scatter.any.reference", "", 0);
    info.fingerprint = "reference";
    info.reference = true;
    return info;
  }
};

}  // namespace

std::string KeyOf(const KvScatterDesc& desc) {
  return Format("kv_scatter {}_{} rows={} kv_heads={} head_dim={} threads={}",
                DataTypeName(desc.type_x), DataTypeName(desc.type_cache), desc.rows, desc.kv_heads,
                desc.head_dim, desc.threads);
}

Result<KvScatterDesc> DescOf(const KvScatterArgs& args, int threads) {
  if (Status s = CheckView("kv scatter: x", args.x); !s) return Fail(s.error());
  if (Status s = CheckView("kv scatter: cache", args.cache); !s) return Fail(s.error());
  if (args.x.shape[3] != 1 || args.cache.shape[0] != args.x.shape[0] ||
      args.cache.shape[1] != args.x.shape[1]) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("kv scatter: x {} into cache {}: must be [head_dim, kv_heads, rows] into "
                       "[head_dim, kv_heads, "
                       "context, slots]",
                       ShapeText(args.x), ShapeText(args.cache)));
  }
  if (Status s = CheckInts("kv scatter: positions", args.positions, args.x.shape[2]); !s)
    return Fail(s.error());
  if (Status s = CheckInts("kv scatter: slots", args.slots, args.x.shape[2]); !s)
    return Fail(s.error());
  const int block = GetTypeInfo(args.cache.dtype).block_elements;
  if (args.cache.shape[0] % block != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("kv scatter: head_dim = {}, must be a multiple of {} for a cache of {}",
                       args.cache.shape[0], block, DataTypeName(args.cache.dtype)));
  }
  for (int d = 1; d < 4; ++d) {
    if (args.cache.shape[d] > 1 && args.cache.stride[d] % block != 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("kv scatter: cache.stride[{}] = {}, must be a multiple of {}", d,
                         args.cache.stride[d], block));
    }
  }
  return KvScatterDesc{.type_x = args.x.dtype,
                       .type_cache = args.cache.dtype,
                       .rows = static_cast<std::int32_t>(args.x.shape[2]),
                       .kv_heads = static_cast<std::int32_t>(args.x.shape[1]),
                       .head_dim = static_cast<std::int32_t>(args.x.shape[0]),
                       .threads = threads};
}

Status CheckPlaces(const KvScatterArgs& args) {
  const auto* positions = args.positions.as<const std::int32_t>();
  const auto* slots = args.slots.as<const std::int32_t>();
  for (std::int64_t r = 0; r < args.x.shape[2]; ++r) {
    if (slots[r] < 0 || slots[r] >= args.cache.shape[3]) {
      return Fail(
          ErrorCode::kInvalidArgument,
          Format("kv scatter: slots[{}] = {}, the cache has {}", r, slots[r], args.cache.shape[3]));
    }
    if (positions[r] < 0 || positions[r] >= args.cache.shape[2]) {
      const ErrorCode code = positions[r] < 0 ? ErrorCode::kInvalidArgument : ErrorCode::kExhausted;
      return Fail(code, Format("kv scatter: positions[{}] = {}, the context has {}", r,
                               positions[r], args.cache.shape[2]));
    }
  }
  return {};
}

void AddKvScatter(KvScatterRegistry& registry) {
  const CpuKvScatter::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const CopyImpl* impl : {&kCopyScalar, &kCopyAvx2, &kCopyAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuKvScatter>(
        CpuKernelInfo(Format("kv_scatter.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  static_cast<void>(registry.Add(std::make_unique<ReferenceKernel>()));
}

}  // namespace tilewright
