#include "ops/copy/copy.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "engine/stage_templates.h"
#include "ops/copy/cpu/copy_cpu.h"

namespace tilewright::copy {
namespace {

using CpuCopy = FunctionKernel<Op, CopyImpl>;

// Elements of a task: many, since copies run at memory speed and waking another core pays off late.
constexpr std::int64_t kGrain = 65536;

/// nullptr if the pair needs no conversion, or if this kernel does not support it.
ConvertRow Converter(const CopyImpl& impl, DataType src, DataType dst) {
  if (const BlockFormat* format = FindFormat(src); format != nullptr && dst == DataType::kF32)
    return impl.unpack[static_cast<std::size_t>(format - kFormats.data())];
  return IsFloatType(dst) || dst == DataType::kI8X32 ? impl.rows.Find(src, dst) : nullptr;
}

std::optional<Rejection> Feasible(const CopyImpl& impl, const Desc& desc) {
  if (desc.type_src != desc.type_dst && Converter(impl, desc.type_src, desc.type_dst) == nullptr) {
    return Rejection{Reason::kType,
                     Format("{} to {}", DataTypeName(desc.type_src), DataTypeName(desc.type_dst)),
                     "equal types, f32, f16 and bf16, a block format to f32, or f32 to i8x32"};
  }
  if (desc.type_src == DataType::kNone) return Rejection{Reason::kType, "type none", "a type"};
  if (!desc.adjacent)
    return Rejection{Reason::kOrder, "elements apart in dimension 0", "stride[0] = 1"};
  return std::nullopt;
}

double EstimateUs(const CopyImpl& impl, const Desc& desc, int workers) {
  const double elements = static_cast<double>(desc.rows) * desc.cols;
  const bool unpacks = desc.type_src != desc.type_dst && FindFormat(desc.type_src) != nullptr;
  return elements * (unpacks ? impl.ns_per_unpacked : impl.ns_per_element) * 1e-3 /
         BusyWorkers(elements, kGrain, workers);
}

/// `n` elements at element offsets `from` and `to`; multiples of the block for block types.
void CopyRange(const Args& args, ConvertRow convert, std::int64_t from, std::int64_t to,
               std::int64_t n) {
  const unsigned char* src = AddressOf(args.src, from);
  unsigned char* dst = MutableAddressOf(args.dst, to);
  if (convert != nullptr) {
    convert(src, dst, n);
  } else {
    std::memcpy(dst, src, BytesOf(args.src.dtype, n));
  }
}

Status Launch(const CopyImpl& impl, const Args& args, Stream stream) {
  const DataType from = args.src.dtype, to = args.dst.dtype;
  const ConvertRow convert = from == to ? nullptr : Converter(impl, from, to);
  if (args.src.data == args.dst.data && convert == nullptr && args.src.stride == args.dst.stride)
    return {};
  const std::int64_t block =
      std::max(GetTypeInfo(from).block_elements, GetTypeInfo(to).block_elements);
  if (IsContiguous(args.src) && IsContiguous(args.dst)) {
    // One long row, cut at whole blocks.
    ParallelRanges(stream.exec(), args.src.elements() / block, kGrain / block,
                   [&](std::int64_t begin, std::int64_t end) {
                     CopyRange(args, convert, begin * block, begin * block, (end - begin) * block);
                   });
    return {};
  }
  const std::int64_t cols = args.src.cols();
  ParallelRanges(stream.exec(), RowCount(args.src), kGrain / std::max<std::int64_t>(cols, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     CopyRange(args, convert, RowOffset(args.src, row), RowOffset(args.dst, row),
                               cols);
                   }
                 });
  return {};
}

std::optional<Rejection> ReferenceFeasible(const Desc& desc) {
  if (CanConvert(desc.type_src, desc.type_dst)) return std::nullopt;
  return Rejection{
      Reason::kType, Format("{} to {}", DataTypeName(desc.type_src), DataTypeName(desc.type_dst)),
      "equal types, f64, f32, f16 and bf16, a block format to f32, f16 or bf16, or f32 "
      "to i8x32"};
}

double ReferenceUs(const Desc& desc) { return static_cast<double>(desc.rows) * desc.cols * 5e-3; }

void CheckNode(const NodeView& node, NodeCheck& check) {
  check.ExpectSameShape("inputs[0]", node.in(0), node.out);
  check.ExpectFloat("inputs[0]", node.in(0).dtype);
  if (node.out.dtype != DataType::kI8X32) check.ExpectFloat("out", node.out.dtype);
}

constexpr NodeRule kRules[] = {
    {.op = TensorOp::kCopy, .name = "copy", .min_inputs = 1, .max_inputs = 1, .check = &CheckNode}};

/// As CheckView, but elements may lie apart.
Status CheckStrided(std::string_view what, TensorView view) {
  if (view.stride[0] < 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{}: stride[0] = {} is negative", what, view.stride[0]));
  }
  if (GetTypeInfo(view.dtype).block_elements == 1) view.stride[0] = 1;
  return CheckView(what, view);
}

}  // namespace

bool CanConvert(DataType src, DataType dst) {
  if (src == DataType::kNone || dst == DataType::kNone) return false;
  const bool unpacks = FindFormat(src) != nullptr && RowTypeIndex(dst) >= 0;
  const bool quantises = src == DataType::kF32 && dst == DataType::kI8X32;
  return src == dst || unpacks || quantises || (IsFloatType(src) && IsFloatType(dst));
}

std::span<const NodeRule> Op::NodeRules() { return kRules; }

Args Op::ArgsOf(const NodeView& node) { return {.src = node.in(0), .dst = node.out}; }

std::string KeyOf(const Desc& desc) { return FieldsKey(desc); }

Result<Desc> DescOf(const Args& args, const CallTerms& terms) {
  if (Status s = CheckStrided("copy: src", args.src); !s) return Fail(s.error());
  if (Status s = CheckStrided("copy: dst", args.dst); !s) return Fail(s.error());
  if (Status s = CheckSameShape("copy: dst", args.dst, "src", args.src); !s) return Fail(s.error());
  for (const TensorView* view : {&args.src, &args.dst}) {
    const int block = GetTypeInfo(view->dtype).block_elements;
    for (int d = 0; d < 4 && block > 1; ++d) {
      const bool whole = d == 0 ? view->shape[0] % block == 0
                                : view->shape[d] <= 1 || view->stride[d] % block == 0;
      if (!whole) {
        return Fail(ErrorCode::kInvalidArgument,
                    Format("copy: dimension {} does not divide into {} blocks of {}", d,
                           DataTypeName(view->dtype), block));
      }
    }
  }
  const bool adjacent =
      args.src.shape[0] <= 1 || (args.src.stride[0] == 1 && args.dst.stride[0] == 1);
  return Desc{.type_src = args.src.dtype,
              .type_dst = args.dst.dtype,
              .rows = RowCount(args.src),
              .cols = static_cast<std::int32_t>(args.src.cols()),
              .adjacent = adjacent,
              .guarantee = terms.guarantee};
}

Result<Checked<Op>> Validate(const Desc& desc) {
  if (desc.rows < 1 || desc.cols < 1) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("copy: rows = {}, cols = {}: each must be at least 1", desc.rows, desc.cols));
  }
  for (const DataType type : {desc.type_src, desc.type_dst}) {
    const int block = GetTypeInfo(type).block_elements;
    if (desc.cols % block == 0) continue;
    return Fail(ErrorCode::kInvalidArgument,
                Format("copy: cols = {}: must be a multiple of {} for {}", desc.cols, block,
                       DataTypeName(type)));
  }
  return Stages<Op>::MarkValidated(desc);
}

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceOpKernel<Op>>(
      "copy.any.reference",
      ReferenceOpKernel<Op>::Functions{&ReferenceFeasible, &ReferenceUs, &Reference})));
}

void AddKernels(Registry& registry) {
  const CpuCopy::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const CopyImpl* impl : {&kCopyScalar, &kCopyAvx2, &kCopyAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuCopy>(
        CpuKernelInfo(Format("copy.{}", impl->isa), impl->tu, impl->features), *impl, shared)));
  }
  AddReference(registry);
}

}  // namespace tilewright::copy

namespace tilewright {
TILEWRIGHT_INSTANTIATE_STAGES(copy::Op);
}  // namespace tilewright
