#include "artifact/spec_checks.h"

#include <algorithm>
#include <utility>

#include "core/text.h"

namespace tilewright {

std::optional<Rejection> Reject(Reason reason, std::string have, std::string need) {
  return Rejection{reason, std::move(have), std::move(need)};
}

std::optional<Rejection> CheckRange(const char* field, int have, int low, int high) {
  if (have >= low && have <= high) return std::nullopt;
  return Reject(Reason::kShape, Format("{} = {}", field, have),
                low == high ? Format("{}", low) : Format("{} to {}", low, high));
}

std::optional<Rejection> CheckOneOf(const char* field, int have, std::span<const int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), have) != allowed.end()) return std::nullopt;
  std::string list;
  for (const int value : allowed) list += Format("{}{}", list.empty() ? "" : ", ", value);
  return Reject(Reason::kShape, Format("{} = {}", field, have), Format("one of {}", list));
}

std::optional<Rejection> CheckFamily(const KernelSpec& spec, const KernelFamily& family) {
  if (spec.family == family.name) return std::nullopt;
  return Reject(Reason::kDevice, Format("a kernel of {}", spec.family.view()),
                Format("one of {}", family.name.view()));
}

std::uint32_t MaxSmemBytes(CudaArch arch) {
  switch (arch.number) {
    case 80:
    case 87:
      return 163 * 1024;
    case 86:
    case 88:
    case 89:
    case 120:
    case 121:
      return 99 * 1024;
    default:
      return 227 * 1024;
  }
}

bool IsPlainFloat(DataType type) {
  return type == DataType::kF32 || type == DataType::kBF16 || type == DataType::kF16;
}

std::optional<Rejection> CheckPlainFloat(const char* field, DataType have) {
  if (IsPlainFloat(have)) return std::nullopt;
  return Reject(Reason::kType, Format("{} = {}", field, DataTypeName(have)), "f32, bf16 or f16");
}

std::optional<Rejection> CheckRowKernel(const KernelSpec& spec) {
  if (spec.arch.number < 80) {
    return Reject(Reason::kDevice, spec.arch.ToString(), "sm_80 or newer");
  }
  if (auto no = CheckRange("warps", spec.warps, 1, 32)) return no;
  if (spec.order_a != Order::kRowMajor || spec.order_b != Order::kRowMajor) {
    return Reject(Reason::kOrder, "other orders", "row-major");
  }
  return std::nullopt;
}

KernelLaunchShape LaunchRowKernel(const KernelSpec& spec) {
  return {.threads = spec.warps * 32u, .dynamic_smem_bytes = 0};
}

ResourceLimits LimitRowKernel(const KernelSpec& spec) {
  return {.max_registers = spec.warps > 16 ? 64u : spec.warps > 8 ? 128u : 255u};
}

}  // namespace tilewright
