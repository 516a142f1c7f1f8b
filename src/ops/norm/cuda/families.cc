#include "ops/norm/cuda/families.h"

#include <algorithm>
#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "tilewright/cuda/rmsnorm_params.h"

namespace tilewright {
namespace {

constexpr int kMaxPacks = 4;

std::optional<Rejection> Check(const KernelSpec& s) {
  if (auto no = CheckRowKernel(s)) return no;
  if (auto no = CheckPlainFloat("type_a", s.type_a)) return no;
  if (auto no = CheckPlainFloat("type_b", s.type_b)) return no;
  if (auto no = CheckPlainFloat("type_d", s.type_d)) return no;
  if (s.epilogue != SpecEpilogue::kScale && s.epilogue != SpecEpilogue::kAdd) {
    return Reject(Reason::kEpilogue, std::string(SpecEpilogueName(s.epilogue)),
                  "scale, or add for a residual");
  }
  const bool adds = s.epilogue == SpecEpilogue::kAdd;
  if (adds ? !IsPlainFloat(s.type_c) : s.type_c != DataType::kNone) {
    return Reject(Reason::kType, Format("type_c = {}", DataTypeName(s.type_c)),
                  adds ? "f32, bf16 or f16 with epilogue add" : "none without epilogue add");
  }
  if (s.params[0] < 1 || s.params[0] > kMaxPacks) {
    return Reject(Reason::kShape, Format("param0 = {}", s.params[0]),
                  Format("1 to {} packs of a thread", kMaxPacks));
  }
  if (s.type_a != DataType::kF32 && s.warps > 16 && s.params[0] > 2) {
    return Reject(
        Reason::kShape, Format("warps = {}, param0 = {}", s.warps, s.params[0]),
        "at most 2 packs of 16-bit inputs with more than 16 warps: 64 registers a thread");
  }
  if (s.stages != 0 || s.tile_m != 0 || s.tile_n != 0 || s.tile_k != 0 || s.split_k != 0 ||
      s.cluster_m != 0 || s.cluster_n != 0 || s.params[1] != 0 || s.params[2] != 0 ||
      s.params[3] != 0) {
    return Reject(Reason::kShape, "a field that rmsnorm does not use is set",
                  "stages, tiles, split_k, clusters, param1, param2, param3 = 0");
  }
  return std::nullopt;
}

/// The smallest of a few fixed shapes that keeps `width` elements, so that neighbouring widths
/// share a kernel; the largest for what is wider still; 32 warps hold no more of a 16-bit row than
/// 16 do. Two packs a thread before more warps: a wait for memory is then shared by two loads;
/// but one pack of three warps for small models, whose rows are few (576 elements: 1.16 us in a chain
/// of launches, not 1.41).
struct Shape {
  int warps, packs;
};
constexpr std::array kShapes = {Shape{1, 1}, Shape{1, 2}, Shape{3, 1},  Shape{2, 2}, Shape{4, 2},
                                Shape{8, 2}, Shape{8, 4}, Shape{16, 4}, Shape{32, 4}};

Shape ShapeFor(int width, bool f32_input) {
  for (const Shape& shape : kShapes) {
    if (cuda::RmsNormCapacity(shape.warps, shape.packs, f32_input) >= width) return shape;
  }
  return f32_input ? kShapes.back() : kShapes[kShapes.size() - 2];
}

struct Types {
  DataType in, weight, sum, out;  ///< sum: kNone without a residual
};

KernelSpec MakeSpec(const Types& types, const Shape& shape, CudaArch arch) {
  KernelSpec spec;
  spec.family = "rmsnorm";
  spec.arch = arch;
  spec.type_a = types.in;
  spec.type_b = types.weight;
  spec.type_c = types.sum;
  spec.type_d = types.out;
  spec.order_a = spec.order_b = Order::kRowMajor;
  spec.epilogue = types.sum != DataType::kNone ? SpecEpilogue::kAdd : SpecEpilogue::kScale;
  spec.warps = static_cast<std::uint16_t>(shape.warps);
  spec.params[0] = shape.packs;
  return spec;
}

/// Widths of the catalog: heads, and the hidden sizes of models from 135 M to 70 B parameters.
std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  for (const int width : {128, 576, 2048, 4096, 8192}) {
    for (const KernelSpec& spec : NormSpecs(width, arch)) {
      if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace

KernelFamily RmsNormFamily() {
  return {.name = "rmsnorm",
          .launch_abi = 2,
          .source = "ops/norm/cuda/rmsnorm.cu",
          .files = {},
          .options = {},
          .check = &Check,
          .launch = &LaunchRowKernel,
          .limits = &LimitRowKernel,
          .catalog = &Catalog,
          .waits_for_prerequisites = true};
}

Status AddNormFamilies(KernelFamilies& families) { return families.Add(RmsNormFamily()); }

std::vector<KernelSpec> NormSpecs(int width, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (width < 1 || arch.number < 80) return specs;
  for (const DataType in : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    const Shape shape = ShapeFor(width, in == DataType::kF32);
    for (const DataType weight : {DataType::kF32, in}) {
      for (const DataType sum : {DataType::kNone, in}) {
        const KernelSpec spec = MakeSpec({in, weight, sum, in}, shape, arch);
        if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
      }
    }
    // Activations of 16 bits beside a residual stream of f32.
    for (const DataType narrow : {DataType::kBF16, DataType::kF16}) {
      constexpr DataType kF32 = DataType::kF32;
      if (in == kF32) {
        specs.push_back(MakeSpec({kF32, kF32, DataType::kNone, narrow}, shape, arch));
        specs.push_back(MakeSpec({kF32, kF32, kF32, narrow}, shape, arch));
      } else if (in == narrow) {
        specs.push_back(MakeSpec({narrow, kF32, DataType::kNone, kF32}, shape, arch));
        specs.push_back(MakeSpec({narrow, kF32, kF32, narrow}, shape, arch));
      }
    }
  }
  return specs;
}

}  // namespace tilewright
