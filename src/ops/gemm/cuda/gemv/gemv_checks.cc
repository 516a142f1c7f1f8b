#include "ops/gemm/cuda/gemv/gemv_checks.h"

#include <string>

#include "artifact/spec_checks.h"
#include "core/text.h"

namespace tilewright {
namespace {

bool IsActivation(DataType type) { return type == DataType::kF32 || type == DataType::kBF16; }

}  // namespace

std::optional<Rejection> CheckGemvTypes(const KernelSpec& s, bool (*is_weight)(DataType),
                                        const char* weights) {
  if (s.arch.number < 80) return Reject(Reason::kDevice, s.arch.ToString(), "sm_80 or newer");
  if (!IsActivation(s.type_a)) {
    return Reject(Reason::kType, Format("type_a = {}", DataTypeName(s.type_a)), "f32 or bf16");
  }
  if (!is_weight(s.type_b))
    return Reject(Reason::kType, Format("type_b = {}", DataTypeName(s.type_b)), weights);
  if (!IsActivation(s.type_d))
    return Reject(Reason::kType, Format("type_d = {}", DataTypeName(s.type_d)), "f32 or bf16");
  const bool adds = s.epilogue == SpecEpilogue::kAdd;
  if (!adds && s.epilogue != SpecEpilogue::kNone && s.epilogue != SpecEpilogue::kSwiGlu) {
    return Reject(Reason::kEpilogue, std::string(SpecEpilogueName(s.epilogue)),
                  "none, add or swiglu");
  }
  if (adds ? !IsActivation(s.type_c) : s.type_c != DataType::kNone) {
    return Reject(Reason::kType, Format("type_c = {}", DataTypeName(s.type_c)),
                  adds ? "f32 or bf16 with epilogue add" : "none without epilogue add");
  }
  if (s.order_a != Order::kRowMajor || s.order_b != Order::kColMajor) {
    return Reject(Reason::kOrder, "other orders", "k contiguous in both: A row-major, B col-major");
  }
  return std::nullopt;
}

}  // namespace tilewright
