#include "ops/norm/norm.h"

#include <algorithm>
#include <memory>

#include "core/parallel.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "ops/norm/cpu/norm_cpu.h"

namespace tilewright {
namespace {

using CpuNorm = FunctionKernel<NormDesc, NormArgs, NormImpl>;

/// Elements of a task: below this, handing work to another thread costs more than it saves (0.25 us
/// a job).
constexpr std::int64_t kGrain = 16384;

std::optional<Rejection> Feasible(const NormImpl&, const NormDesc& desc) {
  for (const DataType type : {desc.type_in, desc.type_weight, desc.type_out}) {
    if (type != DataType::kF32) {
      return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                       "f32 input, weight and output"};
    }
  }
  return std::nullopt;
}

double EstimateUs(const NormImpl& impl, const NormDesc& desc, const DeviceSpec&) {
  const double elements = static_cast<double>(desc.rows) * desc.cols;
  const double threads =
      std::clamp(elements / static_cast<double>(kGrain), 1.0, static_cast<double>(desc.threads));
  return elements * impl.ns_per_element * 1e-3 / threads + desc.rows * 0.01;
}

Status Launch(const NormImpl& impl, const NormArgs& args, Stream stream) {
  const Result<NormDesc> desc = DescOf(args, 1);
  if (!desc) return Fail(desc.error());
  if (auto no = Feasible(impl, *desc)) return Fail(ErrorCode::kUnsupported, no->ToString());
  const std::int64_t cols = args.in.cols();
  ParallelRanges(stream.exec(), RowCount(args.in), kGrain / std::max<std::int64_t>(cols, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     impl.row(args.in.as<const float>() + RowOffset(args.in, row),
                              args.weight.as<const float>(),
                              args.out.as<float>() + RowOffset(args.out, row), cols, args.epsilon);
                   }
                 });
  return {};
}

class ReferenceKernel final : public NormKernel {
 public:
  ReferenceKernel() : NormKernel(Info()) {}
  std::optional<Rejection> IsFeasible(const NormDesc& desc) const override {
    for (const DataType type : {desc.type_in, desc.type_weight, desc.type_out}) {
      if (!IsFloatType(type)) {
        return Rejection{Reason::kType, Format("type {}", DataTypeName(type)),
                         "f64, f32, f16 or bf16"};
      }
    }
    return std::nullopt;
  }
  double EstimateUs(const NormDesc& desc, const DeviceSpec&) const override {
    return static_cast<double>(desc.rows) * desc.cols * 10e-3;
  }
  Status Launch(const NormArgs& args, Stream) const override { return ReferenceNorm(args); }

 private:
  static KernelInfo Info() {
    KernelInfo info = CpuKernelInfo("norm.rms.any.reference", "", 0);
    info.fingerprint = "reference";
    info.reference = true;
    return info;
  }
};

}  // namespace

std::string KeyOf(const NormDesc& desc) {
  return Format("norm.rms {}_{}_{} rows={} cols={} threads={}", DataTypeName(desc.type_in),
                DataTypeName(desc.type_weight), DataTypeName(desc.type_out), desc.rows, desc.cols,
                desc.threads);
}

Result<NormDesc> DescOf(const NormArgs& args, int threads) {
  if (Status s = CheckView("norm: in", args.in); !s) return Fail(s.error());
  if (Status s = CheckView("norm: weight", args.weight); !s) return Fail(s.error());
  if (Status s = CheckView("norm: out", args.out); !s) return Fail(s.error());
  if (Status s = CheckSameShape("norm: out", args.out, "in", args.in); !s) return Fail(s.error());
  if (args.weight.elements() != args.in.cols() || args.weight.cols() != args.in.cols()) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("norm: weight has shape {}, must be [cols = {}]", ShapeText(args.weight),
                       args.in.cols()));
  }
  if (!(args.epsilon >= 0)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("norm: epsilon = {}, must be 0 or more", args.epsilon));
  }
  return NormDesc{.type_in = args.in.dtype,
                  .type_weight = args.weight.dtype,
                  .type_out = args.out.dtype,
                  .rows = static_cast<std::int32_t>(RowCount(args.in)),
                  .cols = static_cast<std::int32_t>(args.in.cols()),
                  .threads = threads};
}

void AddNorm(NormRegistry& registry) {
  const CpuNorm::Shared shared{&Feasible, &EstimateUs, &Launch};
  for (const NormImpl* impl : {&kNormScalar, &kNormAvx2, &kNormAvx512}) {
    static_cast<void>(registry.Add(std::make_unique<CpuNorm>(
        CpuKernelInfo(Format("norm.rms.f32.{}", impl->isa), impl->tu, impl->features), *impl,
        shared)));
  }
  static_cast<void>(registry.Add(std::make_unique<ReferenceKernel>()));
}

}  // namespace tilewright
