#include "ops/copy/kv_scatter.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/paged_cache.h"
#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/copy/cpu/copy_cpu.h"

namespace tilewright::kv_scatter {
namespace {

using CpuKvScatter = FunctionKernel<Op, CopyImpl>;

constexpr std::int64_t kGrain = 32768;  // elements of a task

std::optional<Rejection> Feasible(const CopyImpl&, const Desc& desc) {
  const bool blocks = desc.type_x == DataType::kF32 && desc.type_cache == DataType::kQ8_0;
  const bool floats = RowTypeIndex(desc.type_x) >= 0 && RowTypeIndex(desc.type_cache) >= 0;
  if (!blocks && !floats) {
    return Rejection{Reason::kType,
                     Format("{} into {}", DataTypeName(desc.type_x), DataTypeName(desc.type_cache)),
                     "f32, f16 or bf16 into any of them, or f32 into q8_0"};
  }
  return std::nullopt;
}

double EstimateUs(const CopyImpl& impl, const Desc& desc, int workers) {
  const double elements = static_cast<double>(desc.rows) * desc.kv_heads * desc.head_dim;
  return elements * impl.ns_per_element * 1e-3 / BusyWorkers(elements, kGrain, workers);
}

/// `n` adjacent elements; multiples of 32 for q8_0.
void Put(const CopyImpl& impl, const Args& args, std::int64_t from, std::int64_t to,
         std::int64_t n) {
  const unsigned char* src = AddressOf(args.x, from);
  unsigned char* dst = MutableAddressOf(args.cache, to);
  if (const ConvertRow convert = impl.rows.Find(args.x.dtype, args.cache.dtype)) {
    convert(src, dst, n);
  } else {
    std::memcpy(dst, src, BytesOf(args.x.dtype, n));
  }
}

Status Launch(const CopyImpl& impl, const Args& args, Stream stream) {
  const CacheRows where{args.cache, args.pages, args.positions, args.slots};
  if (Status s = CheckPlaces("kv scatter", where, args.x.shape[2]); !s) return s;
  const std::int64_t head_dim = args.x.shape[0], heads = args.x.shape[1];
  const bool one_run =
      heads == 1 || (args.x.stride[1] == head_dim && args.cache.stride[1] == head_dim);
  const auto* positions = args.positions.as<const std::int32_t>();
  const auto* slots = args.slots.as<const std::int32_t>();
  const CachePlaces places(args.cache, args.pages);
  ParallelRanges(
      stream.exec(), args.x.shape[2], kGrain / std::max<std::int64_t>(head_dim * heads, 1),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          if (positions[r] < 0) continue;  // padding
          const std::int64_t from = r * args.x.stride[2];
          const std::int64_t to = places.Offset(slots[r], positions[r]);
          if (one_run) {
            Put(impl, args, from, to, head_dim * heads);
            continue;
          }
          for (std::int64_t h = 0; h < heads; ++h) {
            Put(impl, args, from + h * args.x.stride[1], to + h * args.cache.stride[1], head_dim);
          }
        }
      });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  if (IsFloatType(desc.type_x) &&
      (IsFloatType(desc.type_cache) || desc.type_cache == DataType::kQ8_0)) {
    return std::nullopt;
  }
  return Rejection{Reason::kType,
                   Format("{} into {}", DataTypeName(desc.type_x), DataTypeName(desc.type_cache)),
                   "a float type into f64, f32, f16, bf16 or q8_0"};
}

double ReferenceUs(const Desc& desc) {
  return static_cast<double>(desc.rows) * desc.kv_heads * desc.head_dim * 5e-3;
}

void CheckNode(const NodeView& node, NodeCheck& check) { check.ExpectCacheWrite(node); }

constexpr NodeRule kRules[] = {{.op = TensorOp::kKvScatter,
                                .name = "kv_scatter",
                                .min_inputs = 4,
                                .max_inputs = 5,
                                .in_place = 1u << 1,
                                .check = &CheckNode}};

}  // namespace

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) {
  return {.x = node.in(0),
          .cache = node.out,
          .positions = node.in(2),
          .slots = node.in(3),
          .pages = node.in(4)};
}

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckView("kv scatter: x", args.x); !s) return Fail(s.error());
  if (Status s = CheckView("kv scatter: cache", args.cache); !s) return Fail(s.error());
  if (Status s = CheckRowsFitCache("kv scatter", args.x, args.cache); !s) return Fail(s.error());
  if (Status s = CheckInts("kv scatter: positions", args.positions, args.x.shape[2]); !s)
    return Fail(s.error());
  if (Status s = CheckInts("kv scatter: slots", args.slots, args.x.shape[2]); !s)
    return Fail(s.error());
  if (Status s = CheckPageTable("kv scatter", args.pages); !s) return Fail(s.error());
  return Desc{
      .type_x = args.x.dtype,
      .type_cache = args.cache.dtype,
      .rows = static_cast<std::int32_t>(args.x.shape[2]),
      .kv_heads = static_cast<std::int32_t>(args.x.shape[1]),
      .head_dim = static_cast<std::int32_t>(args.x.shape[0]),
      .page_size = args.pages.data != nullptr ? static_cast<std::int32_t>(args.cache.shape[2]) : 0,
      .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.kv_heads < 1 || desc.head_dim < 1 || desc.page_size < 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("kv scatter: rows = {}, kv_heads = {}, head_dim = {}: each must be at least "
                       "1; page_size = {}: must be 0 or more",
                       desc.rows, desc.kv_heads, desc.head_dim, desc.page_size));
  }
  const int block = GetTypeInfo(desc.type_cache).block_elements;
  if (desc.head_dim % block != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("kv scatter: head_dim = {}, must be a multiple of {} for a cache of {}",
                       desc.head_dim, block, DataTypeName(desc.type_cache)));
  }
  return Stages<Op>::MarkValidated(desc);
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "kv_scatter.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuKvScatter::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const CopyImpl* impl : {&kCopyScalar, &kCopyAvx2, &kCopyAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuKvScatter>(
        CpuKernelInfo(Format("kv_scatter.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::kv_scatter

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(kv_scatter::Op);
}  // namespace tilewright
