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
  const bool cache_ok = CopyTypeIndex(desc.type_cache) >= 0 || desc.type_cache == DataType::kQ8_0;
  if (desc.type_x != DataType::kF32 || !cache_ok) {
    return Rejection{Reason::kType,
                     Format("{} into {}", DataTypeName(desc.type_x), DataTypeName(desc.type_cache)),
                     "f32 into f32, f16, bf16 or q8_0"};
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

Status Launch(const CopyImpl& impl, const Args& args, Stream stream) {
  if (Status status = CheckPlaces(args); !status) return status;
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

void CheckNode(const NodeView& node, NodeCheck& check) {
  const TensorView& x = node.in(0);
  check.ExpectFloat("inputs[0]", x.dtype);
  check.Expect("inputs[1].shape[0]", node.in(1).shape[0], x.shape[0], "head_dim");
  check.Expect("inputs[1].shape[1]", node.in(1).shape[1], x.shape[1], "kv_heads");
  check.ExpectSameShape("out", node.out, node.in(1));
  check.ExpectType("out", node.out.dtype, node.in(1).dtype);
  check.ExpectRows("inputs[2].shape[0]", node.in(2), x.shape[2]);
  check.ExpectRows("inputs[3].shape[0]", node.in(3), x.shape[2]);
  if (node.inputs[4].present) check.ExpectType("inputs[4]", node.in(4).dtype, DataType::kI32);
  if (node.inputs[1].storage != LeafKind::kCache) check.Fault("inputs[1] is not a cache");
  if (node.overwrites != 1) check.Fault("alias_of: must be the cache, inputs[1]");
}

constexpr NodeRule kRules[] = {{.op = TensorOp::kKvScatter,
                                .name = "kv_scatter",
                                .min_inputs = 4,
                                .max_inputs = 5,
                                .in_place = 1u << 1,
                                .check = &CheckNode}};

/// The page table fits the cache; nothing to say where there is none.
Status CheckPageTable(const Args& args) {
  const TensorView& pages = args.pages;
  if (pages.data == nullptr) return {};
  if (pages.dtype == DataType::kI32 && pages.shape[2] == 1 && pages.shape[3] == 1 &&
      pages.stride[0] == 1 && pages.stride[1] >= 0) {
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument,
              Format("kv scatter: pages {} {}, must be i32 [pages of a sequence, slots]",
                     DataTypeName(pages.dtype), ShapeText(pages)));
}

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
  if (Status s = CheckPageTable(args); !s) return Fail(s.error());
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

Status CheckPlaces(const Args& args) {
  const CachePlaces places(args.cache, args.pages);
  const auto* positions = args.positions.as<const std::int32_t>();
  const auto* slots = args.slots.as<const std::int32_t>();
  for (std::int64_t r = 0; r < args.x.shape[2]; ++r) {
    if (positions[r] == -1) continue;  // padding
    if (slots[r] < 0 || slots[r] >= places.slots()) {
      return Fail(
          ErrorCode::kInvalidArgument,
          Format("kv scatter: slots[{}] = {}, the cache has {}", r, slots[r], places.slots()));
    }
    if (positions[r] < 0 || positions[r] >= places.context()) {
      const ErrorCode code = positions[r] < 0 ? ErrorCode::kInvalidArgument : ErrorCode::kExhausted;
      return Fail(code, Format("kv scatter: positions[{}] = {}, the context has {}", r,
                               positions[r], places.context()));
    }
    if (!places.paged()) continue;
    const std::int64_t logical = positions[r] / args.cache.shape[2];
    const std::int32_t page = places.PagesOf(slots[r])[logical];
    if (page < 0 || page >= places.physical_pages()) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("kv scatter: pages[{}, {}] = {}, the cache has {}", logical, slots[r],
                         page, places.physical_pages()));
    }
  }
  return {};
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
