#include "ops/gemm/cuda/family_checks.h"

#include "core/text.h"
#include "tilewright/types.h"

namespace tilewright {

std::optional<Rejection> CheckGemmTypes(const KernelSpec& spec) {
  const auto narrow = [](DataType type) {
    return type == DataType::kBF16 || type == DataType::kF16;
  };
  if (!narrow(spec.type_a) || spec.type_b != spec.type_a) {
    return Rejection{Reason::kType,
                     Format("A {} and B {}", DataTypeName(spec.type_a), DataTypeName(spec.type_b)),
                     "both bf16 or both f16"};
  }
  if (!IsPlainFloat(spec.type_d)) {
    return Rejection{Reason::kType, Format("D {}", DataTypeName(spec.type_d)), "bf16, f16 or f32"};
  }
  switch (spec.epilogue) {
    case SpecEpilogue::kNone:
      if (spec.type_c != DataType::kNone) {
        return Rejection{Reason::kType, Format("C {}", DataTypeName(spec.type_c)),
                         "no C without the epilogue add"};
      }
      break;
    case SpecEpilogue::kAdd:
      if (!IsPlainFloat(spec.type_c)) {
        return Rejection{Reason::kType, Format("C {}", DataTypeName(spec.type_c)),
                         "bf16, f16 or f32"};
      }
      break;
    case SpecEpilogue::kScale:
    case SpecEpilogue::kSwiGlu:
      return Rejection{Reason::kEpilogue, Format("epilogue {}", SpecEpilogueName(spec.epilogue)),
                       "none or add"};
  }
  return std::nullopt;
}

}  // namespace tilewright
