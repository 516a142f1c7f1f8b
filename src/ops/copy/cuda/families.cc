#include "ops/copy/cuda/families.h"

#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/block_types.h"

namespace tilewright {
namespace {

constexpr std::array kFloats = {DataType::kF32, DataType::kBF16, DataType::kF16};
constexpr int kWarps = 4;

KernelSpec CopySpec(CudaArch arch, DataType src, DataType dst) {
  KernelSpec spec;
  spec.family = "copy";
  spec.arch = arch;
  spec.type_a = src;
  spec.type_d = dst;
  spec.order_a = spec.order_b = Order::kRowMajor;
  spec.warps = kWarps;
  return spec;
}

/// That nothing is set but the types of `plain`, orders and warps.
std::optional<Rejection> CheckPlain(const KernelSpec& s, KernelSpec plain) {
  plain.family = s.family;
  plain.warps = s.warps;
  if (s == plain) return std::nullopt;
  return Reject(Reason::kShape, Format("a field that {} does not use is set", s.family.view()),
                "other types and epilogue none, everything but types, orders and warps 0");
}

std::optional<Rejection> CheckCopy(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  const bool bytes = s.type_a == DataType::kU8 && s.type_d == DataType::kU8;
  const bool converts = IsPlainFloat(s.type_d) && s.type_a != s.type_d &&
                        (IsPlainFloat(s.type_a) || cuda::IsBlockType(s.type_a));
  if (!bytes && !converts) {
    return Reject(
        Reason::kType,
        Format("type_a = {}, type_d = {}", DataTypeName(s.type_a), DataTypeName(s.type_d)),
        "u8 to u8 for bytes; f32, bf16, f16 or a block format of block_values.cuh to another of "
        "f32, bf16 and f16");
  }
  return CheckPlain(s, CopySpec(s.arch, s.type_a, s.type_d));
}

std::vector<KernelSpec> CopyCatalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  specs.push_back(CopySpec(arch, DataType::kU8, DataType::kU8));
  for (const DataType src : kFloats) {
    for (const DataType dst : kFloats) {
      if (src != dst) specs.push_back(CopySpec(arch, src, dst));
    }
  }
  for (const DataType src : cuda::kBlockTypes) {
    const std::vector<KernelSpec> own = UnpackSpecs(src, arch);
    specs.insert(specs.end(), own.begin(), own.end());
  }
  return specs;
}

KernelSpec ScatterSpec(CudaArch arch, DataType x, DataType cache) {
  KernelSpec spec;
  spec.family = "kv_scatter";
  spec.arch = arch;
  spec.type_a = x;
  spec.type_c = cache;
  spec.order_a = spec.order_b = Order::kRowMajor;
  spec.warps = kWarps;
  return spec;
}

std::optional<Rejection> CheckScatter(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (auto no = CheckPlainFloat("type_c", s.type_c)) return no;
  return CheckPlain(s, ScatterSpec(s.arch, s.type_a, s.type_c));
}

std::vector<KernelSpec> ScatterCatalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  for (const DataType x : kFloats) {
    for (const DataType cache : kFloats) specs.push_back(ScatterSpec(arch, x, cache));
  }
  return specs;
}

}  // namespace

KernelFamily CopyFamily() {
  return {.name = "copy",
          .source = "ops/copy/cuda/copy.cu",
          .files = {},
          .options = {},
          .check = &CheckCopy,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &CopyCatalog,
          .waits_for_prerequisites = true};
}

KernelFamily KvScatterFamily() {
  return {.name = "kv_scatter",
          .source = "ops/copy/cuda/kv_scatter.cu",
          .files = {},
          .options = {},
          .check = &CheckScatter,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &ScatterCatalog,
          .waits_for_prerequisites = true};
}

Status AddCopyFamilies(KernelFamilies& families) {
  if (Status added = families.Add(CopyFamily()); !added) return added;
  return families.Add(KvScatterFamily());
}

std::vector<KernelSpec> UnpackSpecs(DataType type, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80 || !cuda::IsBlockType(type)) return specs;
  for (const DataType dst : kFloats) specs.push_back(CopySpec(arch, type, dst));
  return specs;
}

}  // namespace tilewright
