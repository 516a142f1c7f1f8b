#include "ops/embedding/cuda/families.h"

#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/block_types.h"

namespace tilewright {
namespace {

constexpr std::array kFloats = {DataType::kF32, DataType::kBF16, DataType::kF16};

/// Four: the row of one decoded token is then several CTAs, not one long one.
constexpr int kWarps = 4;

bool Reads(DataType type) { return IsPlainFloat(type) || cuda::IsBlockType(type); }

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (!Reads(s.type_a)) {
    return Reject(Reason::kType, Format("type_a = {}", DataTypeName(s.type_a)),
                  "f32, bf16, f16 or a block format of block_values.cuh");
  }
  if (auto no = CheckPlainFloat("type_d", s.type_d)) return no;
  if (s.type_b != DataType::kNone || s.type_c != DataType::kNone) {
    return Reject(
        Reason::kType,
        Format("type_b = {}, type_c = {}", DataTypeName(s.type_b), DataTypeName(s.type_c)), "none");
  }
  KernelSpec plain;
  plain.family = s.family, plain.arch = s.arch;
  plain.type_a = s.type_a, plain.type_d = s.type_d;
  plain.order_a = s.order_a, plain.order_b = s.order_b;
  plain.warps = s.warps;
  if (s != plain) {
    return Reject(Reason::kShape, "a field that embedding does not use is set",
                  "epilogue none, everything but types, orders and warps 0");
  }
  return std::nullopt;
}

std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  const auto add = [&](DataType table) {
    const std::vector<KernelSpec> own = EmbeddingSpecs(table, arch);
    specs.insert(specs.end(), own.begin(), own.end());
  };
  for (const DataType table : kFloats) add(table);
  for (const DataType table : cuda::kBlockTypes) add(table);
  return specs;
}

}  // namespace

KernelFamily EmbeddingFamily() {
  return {.name = "embedding",
          .source = "ops/embedding/cuda/embedding.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddEmbeddingFamilies(KernelFamilies& families) { return families.Add(EmbeddingFamily()); }

std::vector<KernelSpec> EmbeddingSpecs(DataType type, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80 || !Reads(type)) return specs;
  for (const DataType out : kFloats) {
    KernelSpec spec;
    spec.family = "embedding";
    spec.arch = arch;
    spec.type_a = type;
    spec.type_d = out;
    spec.order_a = spec.order_b = Order::kRowMajor;
    spec.warps = kWarps;
    specs.push_back(spec);
  }
  return specs;
}

}  // namespace tilewright
